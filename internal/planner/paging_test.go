package planner_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// paged is an API server that serves pods in the requested pages, as the real one does. It records the largest.
type paged struct {
	client.Reader
	largest int
}

func (p *paged) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := p.Reader.List(ctx, list); err != nil {
		return err
	}
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return nil
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	begin, _ := strconv.Atoi(o.Continue) // the first page has no number
	end := len(pods.Items)
	if o.Limit > 0 && begin+int(o.Limit) < end {
		end = begin + int(o.Limit)
		pods.Continue = strconv.Itoa(end)
	}
	pods.Items = slices.Clone(pods.Items[begin:end])
	p.largest = max(p.largest, len(pods.Items))
	return nil
}

func TestSnapshotOfALargeClusterIsReadInPagesAndIsWhole(t *testing.T) {
	const many = 1203
	var objects []client.Object
	for i := range many {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("pod-%04d", i)}})
	}
	api := &paged{Reader: apitest.New(t, enginetest.Now, objects...)}
	var out bytes.Buffer
	if err := manifest.Dump(t.Context(), api, enginetest.Now(), &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "name: pod-"); n != many || api.largest > 500 {
		t.Errorf("%d pods in pages of up to %d, want %d in pages of up to 500", n, api.largest, many)
	}
}
