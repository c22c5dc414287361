package node_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// generated is user data that Dovetail generates, by its own tests, for this cluster.
func generated(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "aws", "bootstrap", "testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(
		"https://GOLDEN.gr7.us-east-1.eks.amazonaws.com", world.cluster.Endpoint(),
		"R09MREVO", base64.StdEncoding.EncodeToString(world.cluster.CA()),
		"golden", clusterName,
	).Replace(string(text))
}

// comesUp is what a node has of its user data.
type comesUp struct {
	labels map[string]string // besides those of every node
	taints []corev1.Taint    // besides the one of every node
	pods   int64
	cpu    string // allocatable of 2
	// memory is what is reserved, threshold the share of all memory that must stay free, in percent. Zero states nothing.
	memory    string
	threshold int64
}

// An instance of each Linux family comes up as the user data that Dovetail generates for it states: m5.large with 2 CPUs.
func TestInstancesBootWithUserDataOfDovetail(t *testing.T) {
	taints := []corev1.Taint{
		{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: "dedicated", Value: "team-a", Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute},
	}
	labels, kept := map[string]string{"team": "a", "example.com/tier": "web"}, map[string]string{"own": "kept"}
	plain := comesUp{pods: 58, cpu: "1930m"}
	windows := map[string]string{"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"}
	for _, family := range []struct {
		name, image    string
		kubelet, owned comesUp
	}{
		{"al2", "amazon-eks-node-1.32", comesUp{pods: 6, cpu: "1870m", memory: "800Mi", threshold: 4}, plain},
		{
			"al2023", "amazon-eks-node-al2023-x86_64-standard-" + world.cluster.Version(),
			comesUp{pods: 6, cpu: "1870m", memory: "800Mi", threshold: 4},
			comesUp{pods: 58, cpu: "1930m", labels: kept},
		},
		{
			"bottlerocket", "bottlerocket-aws-k8s-" + world.cluster.Version() + "-x86_64",
			comesUp{pods: 42, cpu: "1870m", memory: "800Mi", threshold: 4},
			comesUp{pods: 58, cpu: "1930m", labels: kept},
		},
		{
			"windows2022", "Windows_Server-2022-English-Core-EKS_Optimized-" + world.cluster.Version(),
			comesUp{pods: 6, cpu: "1870m", memory: "800Mi", threshold: 4, labels: windows},
			comesUp{pods: 58, cpu: "1930m", labels: windows},
		},
	} {
		for configuration, want := range map[string]comesUp{
			"default": plain, "storage": plain, "own": family.owned, "kubelet": family.kubelet,
			"taints": {pods: 58, cpu: "1930m", labels: labels, taints: taints},
		} {
			name := family.name + "-" + configuration
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want.check(t, up(t, launch(t, host{image: family.image, userData: generated(t, name)})))
			})
		}
	}
}

// up waits until the instance's node is ready, and the cloud controller manager has done its part.
func up(t *testing.T, i awsim.Instance) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	eventually(t, func(ctx context.Context) (err error) {
		if node, err = world.client.CoreV1().Nodes().Get(ctx, i.PrivateDNSName, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.") {
				return fmt.Errorf("node has taint %s", taint.Key)
			}
		}
		if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return errors.New("node is not ready")
		}
		return nil
	})
	return node
}

func (w comesUp) check(t *testing.T, node *corev1.Node) {
	t.Helper()
	for key, want := range map[string]string{"karpenter.sh/nodepool": "general", "karpenter.sh/capacity-type": "spot", "karpenter.sh/do-not-sync-taints": "true"} {
		if node.Labels[key] != want {
			t.Errorf("label %s=%s, want %s", key, node.Labels[key], want)
		}
	}
	for key, want := range w.labels {
		if node.Labels[key] != want {
			t.Errorf("label %s=%s, want %s", key, node.Labels[key], want)
		}
	}
	want := append(slices.Clone(w.taints), corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute})
	got := slices.Clone(node.Spec.Taints)
	slices.SortFunc(got, func(a, b corev1.Taint) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value)) })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("taints (-want +got)\n%s", diff)
	}
	if pods := node.Status.Capacity.Pods().Value(); pods != w.pods {
		t.Errorf("%d pods, want %d", pods, w.pods)
	}
	if cpu := node.Status.Allocatable[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse(w.cpu)) != 0 {
		t.Errorf("allocatable CPU %s, want %s", cpu.String(), w.cpu)
	}
	if w.memory == "" {
		return
	}
	reserved := resource.MustParse(w.memory)
	capacity := node.Status.Capacity.Memory().Value()
	if got, want := node.Status.Allocatable.Memory().Value(), capacity-reserved.Value()-capacity*w.threshold/100; got != want {
		t.Errorf("allocatable memory %d, want %d of %d", got, want, capacity)
	}
}
