package bootstrap

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; commit only what you understand")

func plain() Input {
	return Input{
		Cluster: Cluster{Name: "prod", Endpoint: "https://ABC.gr7.eu-west-1.eks.amazonaws.com", CABundle: "Y2E=", ServiceCIDR: "10.100.0.0/16", DNS: "10.100.0.10"},
		Labels:  map[string]string{"karpenter.sh/nodepool": "general", "karpenter.sh/capacity-type": "spot", "team": "a"},
		Taints:  NodeTaints([]corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}, nil),
		MaxPods: 58,
	}
}

// tuned has everything set.
func tuned(t *testing.T) Input {
	in := plain()
	in.RAID0 = true
	class := awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{Kubelet: &runtime.RawExtension{Raw: []byte(`{
		"clusterDNS": ["10.0.0.53"], "maxPods": 42, "podsPerCore": 3,
		"systemReserved": {"memory": "100Mi", "cpu": "50m"}, "kubeReserved": {"cpu": "80m"},
		"evictionHard": {"nodefs.available": "8%", "memory.available": "4%"},
		"evictionSoft": {"memory.available": "600Mi"}, "evictionSoftGracePeriod": {"memory.available": "90s"},
		"evictionMaxPodGracePeriod": 30, "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 60, "cpuCFSQuota": false
	}`)}}}
	kubelet, err := class.KubeletConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	in.Kubelet, in.RawKubelet = kubelet, class.Spec.Kubelet.Raw
	return in
}

func with(in Input, change func(*Input)) Input {
	change(&in)
	return in
}

const userMIME = "Content-Type: multipart/mixed; boundary=\"XX\"\nMIME-Version: 1.0\n\n--XX\nContent-Type: text/cloud-config\nX-Merge: yes\n\n#cloud-config\n--XX--\n"

func TestGolden(t *testing.T) {
	noKubelet := with(tuned(t), func(in *Input) {
		in.RawKubelet = []byte(strings.Replace(string(in.RawKubelet), `"podsPerCore": 3,`, `"topologyManagerPolicy": "single-numa-node",`, 1))
	})
	for _, tc := range []struct {
		name, family string
		in           Input
	}{
		{"al2-plain", awsv1.AMIFamilyAL2, plain()},
		{"al2-tuned-script", awsv1.AMIFamilyAL2, with(tuned(t), func(in *Input) { in.UserData = "#!/bin/sh\r\necho hello\r\n" })},
		{"al2-ipv6-mime", awsv1.AMIFamilyAL2, with(plain(), func(in *Input) { in.Cluster.DNS = "fd00::10"; in.UserData = userMIME })},
		{"al2023-plain", awsv1.AMIFamilyAL2023, plain()},
		{"al2023-tuned-yaml", awsv1.AMIFamilyAL2023, with(noKubelet, func(in *Input) {
			in.UserData = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {flags: [\"--v=3\"]}}\n"
		})},
		{"al2023-mime", awsv1.AMIFamilyAL2023, with(plain(), func(in *Input) { in.UserData = userMIME })},
		{"al2023-script", awsv1.AMIFamilyAL2023, with(plain(), func(in *Input) { in.UserData = "#!/bin/sh\necho hello" })},
		{"bottlerocket-plain", awsv1.AMIFamilyBottlerocket, plain()},
		{"bottlerocket-tuned-toml", awsv1.AMIFamilyBottlerocket, with(tuned(t), func(in *Input) {
			in.UserData = "[settings.kubernetes]\nmax-pods = 7\nlog-level = 3\nno-such-key = true\n[settings.kubernetes.node-labels]\nteam = \"users\"\nown = \"kept\"\n" +
				"[settings.kubernetes.node-taints]\nmine = [\"x:NoSchedule\"]\n[settings.bootstrap-commands.mine]\ncommands = [[\"apiclient\", \"set\"]]\n[settings.motd]\ntext = \"hi\"\n"
		})},
		{"bottlerocket-raid0-new", awsv1.AMIFamilyBottlerocket, with(plain(), func(in *Input) { in.RAID0, in.BottlerocketBindsDirs = true, true })},
		{"windows2022-plain", awsv1.AMIFamilyWindows2022, plain()},
		{"windows2025-tuned-script", awsv1.AMIFamilyWindows2025, with(tuned(t), func(in *Input) { in.UserData = "Write-Host hello\n" })},
		{"custom", awsv1.AMIFamilyCustom, with(tuned(t), func(in *Input) { in.UserData = "anything\r\n at all" })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Render(tc.family, tc.in)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", tc.name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got.Text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.Text); diff != "" {
				t.Errorf("user data (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownBottlerocketSettingsAreNamed(t *testing.T) {
	in := plain()
	in.UserData = "[settings.kubernetes]\nno-such-key = true\nlog-level = 3\n"
	got, err := Render(awsv1.AMIFamilyBottlerocket, in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"settings.kubernetes.no-such-key"}, got.Dropped); diff != "" {
		t.Error(diff)
	}
}

func TestWhatCannotBeRendered(t *testing.T) {
	for _, tc := range []struct {
		name, family string
		change       func(*Input)
		want         string
	}{
		{"TOML that is none", awsv1.AMIFamilyBottlerocket, func(in *Input) { in.UserData = "echo hello" }, "parse TOML"},
		{"settings that are no table", awsv1.AMIFamilyBottlerocket, func(in *Input) { in.UserData = "settings = 3" }, "settings is not a table"},
		{"MIME without boundary", awsv1.AMIFamilyAL2, func(in *Input) { in.UserData = "MIME-Version: 1.0\nContent-Type: text/plain\n\nhello" }, "not multipart"},
		{"MIME without end", awsv1.AMIFamilyAL2023, func(in *Input) {
			in.UserData = "Content-Type: multipart/mixed; boundary=\"X\"\n\n--X\nContent-Type: text/plain\n\nhello"
		}, "MIME part"},
		{"a family that is none", "Plan9", func(*Input) {}, "Plan9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Render(tc.family, with(plain(), tc.change))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v does not mention %q", err, tc.want)
			}
		})
	}
	_, err := Render(awsv1.AMIFamilyAL2023, with(plain(), func(in *Input) { in.Cluster.ServiceCIDR = "" }))
	if !errors.As(err, &MissingCIDRError{}) {
		t.Errorf("without service CIDR AL2023 gives %v", err)
	}
}

func TestNodeLabels(t *testing.T) {
	got := NodeLabels(map[string]string{
		"kubernetes.io/arch": "x", "foo.kubernetes.io/bar": "x", "k8s.io/a": "x", "topology.k8s.io/b": "x",
		"node-restriction.kubernetes.io/c": "x", "x.node-restriction.kubernetes.io/d": "x",
		"topology.k8s.aws/zone-id": "kept", "notkubernetes.io/e": "kept", "plain": "kept", "karpenter.sh/nodepool": "kept",
	})
	want := map[string]string{"topology.k8s.aws/zone-id": "kept", "notkubernetes.io/e": "kept", "plain": "kept", "karpenter.sh/nodepool": "kept"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnregisteredTaintIsThereOnce(t *testing.T) {
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	other := corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}
	for name, startup := range map[string][]corev1.Taint{"not given": nil, "given as startup taint": {unregistered}} {
		if diff := cmp.Diff([]corev1.Taint{other, unregistered}, NodeTaints([]corev1.Taint{other}, startup)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestBottlerocketBindsDirs(t *testing.T) {
	for version, want := range map[string]bool{
		"latest": true, "v1.46.0": true, "1.46.1": true, "v2.0.0": true,
		"v1.45.0": false, "1.46": false, "": false, "v1.x.0": false,
	} {
		if BottlerocketBindsDirs(version) != want {
			t.Errorf("%q: %v, want %v", version, !want, want)
		}
	}
}
