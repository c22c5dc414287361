package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// WhatIfRequest is one edit: exactly one of NodePool, NodeClass, Deployment and Gates is set.
type WhatIfRequest struct {
	// NodePool or NodeClass is the name of the object that is edited, Manifest its YAML.
	NodePool  string `json:"nodePool,omitempty"`
	NodeClass string `json:"nodeClass,omitempty"`
	Manifest  string `json:"manifest,omitempty"`
	// Deployment is NAMESPACE/NAME, Replicas how many it would have.
	Deployment string `json:"deployment,omitempty"`
	Replicas   *int   `json:"replicas,omitempty"`
	// Gates are values of feature gates by name. Those that are not in it stay as they are.
	Gates map[string]bool `json:"gates,omitempty"`
}

// WhatIf describes what an edit would do; nothing is written. Faults are what is wrong with the manifest; Comparison is null if there are
// any.
type WhatIf struct {
	At         time.Time          `json:"at"`
	Faults     []manifest.Fault   `json:"faults"`
	Comparison *assess.Comparison `json:"comparison"`
	// Prices states where prices come from.
	Prices string `json:"prices"`
	// Patch is the command that makes the edit of a node class; empty for other edits, and where nothing is edited. The manifest may be
	// without the user data of the class, and to apply it as a whole would remove that.
	Patch string `json:"patch"`
}

// WhatIfChoices are what can be edited besides NodePools and node classes.
type WhatIfChoices struct {
	// Deployments are those with known pods, by namespace and name.
	Deployments []manifest.Deployment `json:"deployments"`
	// Gates are the feature gates that passes read.
	Gates []assess.PassGate `json:"gates"`
}

// NodePoolManifest is a NodePool as it is, for kubectl apply.
type NodePoolManifest struct {
	Name     string `json:"name"`
	Manifest string `json:"manifest"`
}

const (
	// maxRequestBytes is that of a manifest in which each byte is escaped.
	maxRequestBytes = 6*manifest.MaxNodePoolBytes + 1024
	// maxReplicas bounds a Deployment that is scaled: a person waits for its plan.
	maxReplicas = 10_000
	// baselineAge sets how old the cluster may be that edits are compared with. A person compares several edits with the same numbers.
	baselineAge = time.Minute
)

// whatIfs computes edits one at a time: each may take all cores for a second.
type whatIfs struct {
	turns
	pools   *manifest.NodePoolReader
	classes *manifest.NodeClassReader
	base    *baseline // of the request that has its turn
}

// baseline is the cluster that edits are compared with, and when it was read.
type baseline struct {
	*assess.Baseline
	view *inspect.View
	at   time.Time
}

func newWhatIfs() *whatIfs {
	return &whatIfs{turns: newTurns(), pools: manifest.NewNodePoolReader(), classes: manifest.NewNodeClassReader()}
}

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
	edit, err := c.editOf(&asked)
	if err != nil {
		return nil, err
	}
	end, err := c.whatIfs.begin(r.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	return edit(r.Context())
}

// editOf chooses what computes a request, which has one kind of edit.
func (c *Console) editOf(asked *WhatIfRequest) (func(context.Context) (any, error), error) {
	kinds := 0
	for _, set := range []bool{asked.NodePool != "", asked.NodeClass != "", asked.Deployment != "", asked.Gates != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return nil, &Problem{
			Status: http.StatusBadRequest, Code: CodeInvalid,
			Message: fmt.Sprintf("exactly one of nodePool, nodeClass, deployment and gates must be set; %d are", kinds),
		}
	case asked.NodePool != "":
		return func(ctx context.Context) (any, error) { return c.editNodePool(ctx, asked) }, nil
	case asked.NodeClass != "":
		return func(ctx context.Context) (any, error) { return c.editNodeClass(ctx, asked) }, nil
	case asked.Deployment != "":
		return func(ctx context.Context) (any, error) { return c.scale(ctx, asked) }, nil
	}
	return func(ctx context.Context) (any, error) { return c.switchGates(ctx, asked.Gates) }, nil
}

func (c *Console) editNodePool(ctx context.Context, asked *WhatIfRequest) (any, error) {
	pool, faults, err := c.whatIfs.pools.Read([]byte(asked.Manifest))
	if err != nil {
		return nil, err
	}
	if len(faults) == 0 {
		faults = renamed("NodePool", pool.Name, asked.NodePool)
	}
	if len(faults) > 0 {
		return WhatIf{At: c.Now(), Faults: faults}, nil
	}
	base, err := c.whatIfs.baseline(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, err := poolOf(base.view, pool.Name); err != nil {
		return nil, err
	}
	return base.answer(base.Compare(pool))
}

func (c *Console) editNodeClass(ctx context.Context, asked *WhatIfRequest) (any, error) {
	class, faults, err := c.whatIfs.classes.Read([]byte(asked.Manifest))
	if err != nil {
		return nil, err
	}
	if len(faults) == 0 {
		faults = renamed("EC2NodeClass", class.Name, asked.NodeClass)
	}
	if len(faults) > 0 {
		return WhatIf{At: c.Now(), Faults: faults}, nil
	}
	base, err := c.whatIfs.baseline(ctx, c)
	if err != nil {
		return nil, err
	}
	before, err := classOf(base.view, class.Name)
	if err != nil {
		return nil, err
	}
	found, err := base.answer(base.CompareNodeClass(class))
	if err != nil {
		return nil, err
	}
	found.Patch, err = patchOf(before, class)
	return found, err
}

// renamed is the fault of a manifest of another object than the one that is edited.
func renamed(kind, name, edited string) []manifest.Fault {
	if name == edited {
		return nil
	}
	return []manifest.Fault{{
		Line: 1, Field: "metadata.name",
		Message: fmt.Sprintf("it is %q; the %s that is edited is %q, and it cannot be renamed", name, kind, edited),
	}}
}

// scale computes another number of replicas.
func (c *Console) scale(ctx context.Context, asked *WhatIfRequest) (any, error) {
	namespace, name, found := strings.Cut(asked.Deployment, "/")
	switch {
	case !found || namespace == "" || name == "":
		return nil, invalid("deployment", fmt.Sprintf("%q is not NAMESPACE/NAME", asked.Deployment))
	case asked.Replicas == nil:
		return nil, invalid("replicas", "the number of replicas is missing")
	case *asked.Replicas < 0 || *asked.Replicas > maxReplicas:
		return nil, invalid("replicas", fmt.Sprintf("%d is not a number from 0 to %d", *asked.Replicas, maxReplicas))
	}
	base, err := c.whatIfs.baseline(ctx, c)
	if err != nil {
		return nil, err
	}
	compared, err := base.CompareReplicas(types.NamespacedName{Namespace: namespace, Name: name}, *asked.Replicas)
	if unknown := (*manifest.UnknownDeploymentError)(nil); errors.As(err, &unknown) {
		missing := inspect.NotFound("Deployment", asked.Deployment, namedDeployments(base.view.Deployments()))
		return nil, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Field: "deployment", Message: missing.Error()}
	}
	return base.answer(compared, err)
}

// namedDeployment is NAMESPACE/NAME.
type namedDeployment string

// GetName is the name by which a request has it.
func (d namedDeployment) GetName() string { return string(d) }

func namedDeployments(all []manifest.Deployment) []namedDeployment {
	out := make([]namedDeployment, len(all))
	for i, d := range all {
		out[i] = namedDeployment(d.Namespace + "/" + d.Name)
	}
	return out
}

// switchGates computes other values of feature gates.
func (c *Console) switchGates(ctx context.Context, gates map[string]bool) (any, error) {
	base, err := c.whatIfs.baseline(ctx, c)
	if err != nil {
		return nil, err
	}
	compared, err := base.CompareGates(gates)
	if unknown := (*assess.UnknownGateError)(nil); errors.As(err, &unknown) {
		return nil, invalid("gates", unknown.Error())
	}
	return base.answer(compared, err)
}

// answer is that of an edit without faults.
func (b *baseline) answer(found *assess.Comparison, err error) (*WhatIf, error) {
	if err != nil {
		return nil, err
	}
	return &WhatIf{At: b.view.Snapshot.Now, Faults: []manifest.Fault{}, Comparison: found, Prices: b.view.Prices}, nil
}

// patchOf is the command that makes the edit of a node class; empty if nothing is edited.
func patchOf(before, edited *awsv1.EC2NodeClass) (string, error) {
	var texts [2][]byte
	for i, class := range []*awsv1.EC2NodeClass{before, edited} {
		out, err := json.Marshal(writtenOf(class))
		if err != nil {
			return "", err
		}
		texts[i] = out
	}
	patch, err := jsonpatch.CreateMergePatch(texts[0], texts[1])
	if err != nil || string(patch) == "{}" {
		return "", err
	}
	quoted := strings.ReplaceAll(string(patch), "'", `'\''`)
	return fmt.Sprintf("kubectl patch ec2nodeclasses.karpenter.k8s.aws %s --type merge -p '%s'", edited.Name, quoted), nil
}

// whatIfChoices lists what can be edited.
func (c *Console) whatIfChoices(r *http.Request) (any, error) {
	return c.views.explain(r.Context(), "what-if", func(v *planned) (any, error) {
		return WhatIfChoices{Deployments: v.Deployments(), Gates: assess.PassGates(v.View)}, nil
	})
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
