package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// WhatIfRequest is a NodePool as it would be.
type WhatIfRequest struct {
	// NodePool is the name of the one that is edited, Manifest its YAML.
	NodePool string `json:"nodePool"`
	Manifest string `json:"manifest"`
}

// WhatIf describes what an edit would do; nothing is written. Faults are what is wrong with the manifest; Comparison is null if there are
// any.
type WhatIf struct {
	At         time.Time          `json:"at"`
	Faults     []manifest.Fault   `json:"faults"`
	Comparison *assess.Comparison `json:"comparison"`
	// Prices states where prices come from.
	Prices string `json:"prices"`
}

// NodePoolManifest is a NodePool as it is, for kubectl apply.
type NodePoolManifest struct {
	Name     string `json:"name"`
	Manifest string `json:"manifest"`
}

const (
	// maxRequestBytes is that of a manifest in which each byte is escaped.
	maxRequestBytes = 6*manifest.MaxNodePoolBytes + 1024
	// baselineAge sets how old the cluster may be that edits are compared with. A person compares several edits with the same numbers.
	baselineAge = time.Minute
)

// whatIfs computes edits one at a time: each may take all cores for a second.
type whatIfs struct {
	turns
	pools *manifest.NodePoolReader
	base  *baseline // of the request that has its turn
}

// baseline is the cluster that edits are compared with, and when it was read.
type baseline struct {
	*assess.Baseline
	view *inspect.View
	at   time.Time
}

func newWhatIfs() *whatIfs { return &whatIfs{turns: newTurns(), pools: manifest.NewNodePoolReader()} }

// forget drops the baseline, after the request that has its turn.
func (w *whatIfs) forget() {
	w.turn <- struct{}{}
	w.base = nil
	<-w.turn
}

// baseline is the last one while it is fresh. The caller has the turn.
func (w *whatIfs) baseline(ctx context.Context, c *Console) (*baseline, error) {
	if w.base != nil && c.Now().Sub(w.base.at) < baselineAge {
		return w.base, nil
	}
	view, err := c.views.current(ctx)
	if err != nil {
		return nil, err
	}
	settings := assess.DefaultSettings()
	settings.Consolidation = view.Search
	w.base = &baseline{assess.NewBaseline(view, settings), view, c.Now()}
	return w.base, nil
}

func (c *Console) whatIf(r *http.Request) (any, error) {
	var asked WhatIfRequest
	if err := readBody(r, &asked); err != nil {
		return nil, err
	}
	end, err := c.whatIfs.begin(r.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	pool, faults, err := c.whatIfs.pools.Read([]byte(asked.Manifest))
	if err != nil {
		return nil, err
	}
	if len(faults) == 0 && pool.Name != asked.NodePool {
		faults = []manifest.Fault{{
			Line: 1, Field: "metadata.name",
			Message: fmt.Sprintf("it is %q; the NodePool that is edited is %q, and a NodePool cannot be renamed", pool.Name, asked.NodePool),
		}}
	}
	if len(faults) > 0 {
		return WhatIf{At: c.Now(), Faults: faults}, nil
	}
	base, err := c.whatIfs.baseline(r.Context(), c)
	if err != nil {
		return nil, err
	}
	if _, err := poolOf(base.view, pool.Name); err != nil {
		return nil, err
	}
	found, err := base.Compare(pool)
	if err != nil {
		return nil, err
	}
	return WhatIf{At: base.view.Snapshot.Now, Faults: []manifest.Fault{}, Comparison: found, Prices: base.view.Prices}, nil
}

// readBody decodes a request of the page.
func readBody(r *http.Request, into any) error {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		return &Problem{
			Status: http.StatusUnsupportedMediaType, Code: CodeInvalid, Field: "Content-Type", Message: "Content-Type: it must be application/json",
		}
	}
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequestBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &Problem{
			Status: http.StatusRequestEntityTooLarge, Code: CodeInvalid, Field: "manifest",
			Message: fmt.Sprintf("manifest: the request has more than %d bytes", tooLarge.Limit),
		}
	}
	if err != nil {
		return invalid("manifest", "the request ended early: "+err.Error())
	}
	if err := json.Unmarshal(data, into); err != nil {
		return invalid("manifest", "the request is not valid JSON: "+err.Error())
	}
	return nil
}

func (c *Console) nodePoolManifest(r *http.Request) (any, error) {
	name := r.PathValue("name")
	return c.views.explain(r.Context(), "manifest "+name, func(v *planned) (any, error) {
		pool, err := poolOf(v.View, name)
		if err != nil {
			return nil, err
		}
		text, err := editable(pool)
		return NodePoolManifest{Name: name, Manifest: text}, err
	})
}

func poolOf(v *inspect.View, name string) (*karpv1.NodePool, error) {
	if i := slices.IndexFunc(v.NodePools, func(p *karpv1.NodePool) bool { return p.Name == name }); i >= 0 {
		return v.NodePools[i], nil
	}
	return nil, inspect.NotFound("NodePool", name, v.NodePools)
}

// authored is the metadata that a person writes.
type authored struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// editable returns what a person writes of a NodePool: without its state and what controllers note on it.
func editable(pool *karpv1.NodePool) (string, error) {
	out := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        authored            `json:"metadata"`
		Spec            karpv1.NodePoolSpec `json:"spec"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: karpv1.GroupVersion.String(), Kind: "NodePool"},
		Metadata: authored{Name: pool.Name, Labels: pool.Labels, Annotations: manifest.Authored(pool.Annotations)}, Spec: pool.Spec,
	}
	text, err := yaml.Marshal(out)
	return string(text), err
}
