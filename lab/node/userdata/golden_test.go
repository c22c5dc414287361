package userdata

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// shipped is user data that Dovetail generates, by its own tests; its CA is not one.
func shipped(t *testing.T, name string, ca []byte) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "internal", "aws", "bootstrap", "testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return withCA(strings.ReplaceAll(string(text), "R09MREVO", "@CA@"), ca)
}

// joins is what an instance makes of the plainest user data of a family.
func joins(family Family, ca []byte) Config {
	c := Config{
		Family: family, ClusterName: "golden", Endpoint: "https://GOLDEN.gr7.us-east-1.eks.amazonaws.com", CA: ca,
		Labels: map[string]string{
			"karpenter.sh/nodepool":           "general",
			"karpenter.sh/capacity-type":      "spot",
			"karpenter.sh/do-not-sync-taints": "true",
		},
		Kubelet: kubelet.KubeletConfiguration{
			ClusterDNS: []string{"10.100.0.10"}, MaxPods: 58,
			RegisterWithTaints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}},
		},
		UseENIMaxPods: family != AL2,
	}
	if family == AL2023 {
		c.ServiceCIDR = "10.100.0.0/16"
	}
	return c
}

// configured is joins with all of spec.kubelet that the family passes on.
func configured(family Family, ca []byte) Config {
	c := joins(family, ca)
	k := &c.Kubelet
	k.ClusterDNS, k.MaxPods = []string{"10.0.0.53"}, 42
	k.SystemReserved = map[string]string{"memory": "100Mi", "cpu": "50m"}
	k.KubeReserved = map[string]string{"cpu": "80m", "memory": "700Mi"}
	k.EvictionHard = map[string]string{"nodefs.available": "8%", "memory.available": "4%"}
	k.EvictionSoft = map[string]string{"memory.available": "600Mi"}
	k.EvictionSoftGracePeriod = map[string]string{"memory.available": "1m30s"}
	k.EvictionMaxPodGracePeriod = 30
	k.ImageGCHighThresholdPercent, k.ImageGCLowThresholdPercent, k.CPUCFSQuota = new(int32(80)), new(int32(60)), new(false)
	switch family {
	case AL2, Windows:
		k.PodsPerCore = 3
		k.SystemReserved["ephemeral-storage"], k.SystemReserved["pid"] = "512Mi", "100"
		k.EvictionHard["nodefs.inodesFree"], k.EvictionSoft["nodefs.available"], k.EvictionSoftGracePeriod["nodefs.available"] = "3%", "12%", "1h0m0s"
	case AL2023:
		k.PodsPerCore = 3
		k.ClusterDNS = append(k.ClusterDNS, "10.0.0.54")
		k.EvictionSoftGracePeriod["memory.available"] = "90s"
		k.TopologyManagerPolicy, k.ShutdownGracePeriod = "single-numa-node", metav1.Duration{Duration: 30 * time.Second}
		k.RegistryPullQPS, k.FeatureGates = new(int32(20)), map[string]bool{"KubeletCrashLoopBackOffMax": true}
	}
	return c
}

// Every image understands what Dovetail writes for it, and as it was meant.
func TestImagesDecodeUserDataOfDovetail(t *testing.T) {
	ca := newCA(t)
	for _, family := range []Family{AL2, AL2023, Bottlerocket, Windows} {
		tainted := joins(family, ca)
		maps.Copy(tainted.Labels, map[string]string{"team": "a", "example.com/tier": "web"})
		tainted.Kubelet.RegisterWithTaints = []corev1.Taint{
			{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
			{Key: "dedicated", Value: "team-a", Effect: corev1.TaintEffectPreferNoSchedule},
			{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute},
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
		}
		striped := joins(family, ca)
		striped.LocalDisks, striped.Kubelet.ClusterDNS = "raid0", []string{"fd00:10::a"}
		own := joins(family, ca)
		switch family {
		case Windows:
			striped.LocalDisks = "" // Windows does not use them
		case AL2023:
			striped.ServiceCIDR = "fd00:10::/108"
			own.Labels["own"], own.Kubelet.ShutdownGracePeriod = "kept", metav1.Duration{Duration: 45 * time.Second}
		case Bottlerocket:
			own.Labels["own"], own.Kubelet.EvictionHard = "kept", map[string]string{"memory.available": "15%"}
		}
		wants := map[string]Config{
			"default": joins(family, ca), "kubelet": configured(family, ca), "own": own, "taints": tainted, "storage": striped,
		}
		switch family {
		case AL2:
			wants["own-mime"] = joins(family, ca)
		case AL2023:
			wants["own-mime"], wants["own-script"] = joins(family, ca), joins(family, ca)
		case Bottlerocket:
			both := own
			both.LocalDisks = "raid0"
			wants["own-storage"] = both
		}
		for name, want := range wants {
			name = strings.ToLower(string(family)) + "-" + name
			if family == Windows {
				name = strings.Replace(name, "windows", "windows2022", 1)
			}
			t.Run(name, func(t *testing.T) {
				got, err := Decode(family, shipped(t, name, ca))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		}
	}
}
