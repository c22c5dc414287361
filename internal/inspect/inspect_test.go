package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

var now = time.Date(2026, 11, 23, 3, 12, 0, 0, time.UTC)

// nothing is a catalog without types.
type nothing struct{}

func (nothing) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return nil, nil }

func config() inspect.Config {
	return inspect.Config{Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
		return inspect.Prices{Catalog: nothing{}, From: "nowhere"}, nil
	}}
}

func objects() []client.Object {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{karpv1.LabelNodePool: "general"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "web", Image: "web", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}}
	return []client.Object{node, pod, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}}
}

// A live cluster and a snapshot file of it give the same view.
func TestLiveAndFilesAgree(t *testing.T) {
	api := apitest.New(t, func() time.Time { return now }, objects()...)
	live, err := inspect.Live(t.Context(), api, now, config())
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := manifest.Dump(t.Context(), api, now, &file); err != nil {
		t.Fatal(err)
	}
	read, err := inspect.Files(manifest.Input{Paths: []string{"-"}, Stdin: &file}, config())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*inspect.View{live, read} {
		if len(v.Snapshot.Pods) != 1 || len(v.Nodes) != 1 || len(v.NodePools) != 1 || !v.Now.Equal(now) || v.Prices != "nowhere" {
			t.Errorf("%d pending pods, %d nodes, %d NodePools at %v with prices of %s", len(v.Snapshot.Pods), len(v.Nodes), len(v.NodePools), v.Now, v.Prices)
		}
		if env := v.Pods[0].Spec.Containers[0].Env; env != nil {
			t.Errorf("the view has the environment of a pod: %v", env)
		}
	}
}

// forbidden is an API server that lets nobody list.
type forbidden struct{ client.Reader }

var errForbidden = errors.New("nodepools is forbidden")

func (forbidden) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errForbidden
}

func TestLiveFails(t *testing.T) {
	if _, err := inspect.Live(t.Context(), forbidden{}, now, config()); !errors.Is(err, errForbidden) {
		t.Errorf("the error %v does not say what the API server answered", err)
	}
	broken := config()
	broken.Prices = func(*manifest.ClusterState) (inspect.Prices, error) {
		return inspect.Prices{}, errors.New("no catalog")
	}
	api := apitest.New(t, func() time.Time { return now }, objects()...)
	if _, err := inspect.Live(t.Context(), api, now, broken); err == nil || !strings.Contains(err.Error(), "no catalog") {
		t.Errorf("the error %v does not say that there is no catalog", err)
	}
}

// A cluster without nodes, pods and NodePools is a view, too.
func TestEmptyCluster(t *testing.T) {
	view, err := inspect.Live(t.Context(), apitest.New(t, func() time.Time { return now }), now, config())
	if err != nil {
		t.Fatal(err)
	}
	if len(view.Snapshot.Pods)+len(view.Snapshot.Nodes) != 0 {
		t.Errorf("%d pods, %d nodes in an empty cluster", len(view.Snapshot.Pods), len(view.Snapshot.Nodes))
	}
}
