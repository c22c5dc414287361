package bootstrap

import (
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

var update = flag.Bool("update", false, "write the golden files anew; commit only what you understand")

// kubelets is spec.kubelet with every field that each family supports.
var kubelets = map[string]string{
	"": `{
		"clusterDNS": ["10.0.0.53"], "maxPods": 42, "podsPerCore": 3,
		"systemReserved": {"memory": "100Mi", "cpu": "50m", "ephemeral-storage": "512Mi", "pid": "100"}, "kubeReserved": {"cpu": "80m", "memory": "700Mi"},
		"evictionHard": {"nodefs.available": "8%", "memory.available": "4%", "nodefs.inodesFree": "3%"},
		"evictionSoft": {"memory.available": "600Mi", "nodefs.available": "12%"},
		"evictionSoftGracePeriod": {"memory.available": "90s", "nodefs.available": "1h"},
		"evictionMaxPodGracePeriod": 30, "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 60, "cpuCFSQuota": false
	}`,
	awsv1.AMIFamilyAL2023: `{
		"clusterDNS": ["10.0.0.53", "10.0.0.54"], "maxPods": 42, "podsPerCore": 3,
		"systemReserved": {"memory": "100Mi", "cpu": "50m"}, "kubeReserved": {"cpu": "80m", "memory": "700Mi"},
		"evictionHard": {"nodefs.available": "8%", "memory.available": "4%"},
		"evictionSoft": {"memory.available": "600Mi"}, "evictionSoftGracePeriod": {"memory.available": "90s"},
		"evictionMaxPodGracePeriod": 30, "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 60, "cpuCFSQuota": false,
		"topologyManagerPolicy": "single-numa-node", "shutdownGracePeriod": "30s", "registryPullQPS": 20, "featureGates": {"KubeletCrashLoopBackOffMax": true}
	}`,
	awsv1.AMIFamilyBottlerocket: `{
		"clusterDNS": ["10.0.0.53"], "maxPods": 42,
		"systemReserved": {"memory": "100Mi", "cpu": "50m"}, "kubeReserved": {"cpu": "80m", "memory": "700Mi"},
		"evictionHard": {"nodefs.available": "8%", "memory.available": "4%"},
		"evictionSoft": {"memory.available": "600Mi"}, "evictionSoftGracePeriod": {"memory.available": "90s"},
		"evictionMaxPodGracePeriod": 30, "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 60, "cpuCFSQuota": false
	}`,
}

// own is user data of the user, in the format of each family.
var own = map[string]string{
	awsv1.AMIFamilyAL2: "#!/bin/sh\r\necho hello\r\n",
	awsv1.AMIFamilyAL2023: `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config: {maxPods: 7, shutdownGracePeriod: 45s}
    flags: ["--v=3", "--node-labels=own=kept"]
`,
	awsv1.AMIFamilyBottlerocket: `[settings.kubernetes]
max-pods = 7
log-level = 3
[settings.kubernetes.node-labels]
"karpenter.sh/nodepool" = "theirs"
own = "kept"
[settings.kubernetes.node-taints]
mine = ["x:NoSchedule"]
[settings.kubernetes.eviction-hard]
"memory.available" = "15%"
[settings.bootstrap-commands.mine]
commands = [["apiclient", "set", "motd=hello"]]
essential = false
mode = "once"
[settings.motd]
text = "hello"
`,
	"":                    "Write-Host hello\n",
	awsv1.AMIFamilyCustom: "#cloud-config\r\nruncmd: [join, the, cluster]\n",
}

// ownMIME has its headers in an order that mail readers accept and that the check for MIME must accept, too.
const ownMIME = "Content-Type: multipart/mixed; boundary=\"XX\"\nMIME-Version: 1.0\n\n--XX\nContent-Type: text/cloud-config\nX-Merge: yes\n\n#cloud-config\n" +
	"--XX\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho hello\n--XX--\n"

func of(byFamily map[string]string, family string) string {
	if text, ok := byFamily[family]; ok {
		return text
	}
	return byFamily[""]
}

// configurations returns what the golden files of each family show.
func configurations(t *testing.T, family string) map[string]Input {
	t.Helper()
	class := awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{Kubelet: &runtime.RawExtension{Raw: []byte(of(kubelets, family))}}}
	kubelet, err := class.KubeletConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Input{
		"default": plain(),
		"kubelet": with(plain(), func(in *Input) { in.Kubelet, in.RawKubelet = kubelet, class.Spec.Kubelet.Raw }),
		"own":     with(plain(), func(in *Input) { in.UserData = of(own, family) }),
		"taints": with(plain(), func(in *Input) {
			in.Labels["team"], in.Labels["example.com/tier"] = "a", "web"
			in.Taints = NodeTaints(
				[]corev1.Taint{
					{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
					{Key: "dedicated", Value: "team-a", Effect: corev1.TaintEffectPreferNoSchedule},
				},
				[]corev1.Taint{{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute}},
			)
		}),
		"storage": with(plain(), func(in *Input) {
			in.RAID0 = true
			in.Cluster.DNS, in.Cluster.ServiceCIDR = "fd00:10::a", "fd00:10::/108"
		}),
	}
}

var families = []string{
	awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023, awsv1.AMIFamilyBottlerocket,
	awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025, awsv1.AMIFamilyCustom,
}

// TestGolden shows the user data of each family. The instances of the lab boot from the same files.
func TestGolden(t *testing.T) {
	for _, family := range families {
		for name, in := range configurations(t, family) {
			if family == awsv1.AMIFamilyCustom { // whatever the settings, the text stays the user's
				in.UserData = own[family]
			}
			golden(t, family, strings.ToLower(family)+"-"+name, in)
		}
	}
	golden(t, awsv1.AMIFamilyAL2, "al2-own-mime", with(plain(), func(in *Input) { in.UserData = ownMIME }))
	golden(t, awsv1.AMIFamilyAL2023, "al2023-own-mime", with(plain(), func(in *Input) { in.UserData = ownMIME }))
	golden(t, awsv1.AMIFamilyAL2023, "al2023-own-script", with(plain(), func(in *Input) { in.UserData = "#!/bin/sh\necho hello" }))
	golden(t, awsv1.AMIFamilyBottlerocket, "bottlerocket-own-storage", with(plain(), func(in *Input) {
		in.UserData, in.RAID0, in.BottlerocketBindsDirs = of(own, awsv1.AMIFamilyBottlerocket), true, true
	}))
}

func golden(t *testing.T, family, name string, in Input) {
	t.Run(name, func(t *testing.T) {
		got, err := Render(family, in)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".txt")
		if *update {
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

// Each case is about a few lines of a golden file: lines that must exist, and lines that must not.
func TestUserDataLines(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		has, lacks []string
	}{
		{name: "kube-dns is IPv6", file: "al2-storage", has: []string{"--ip-family ipv6", "--dns-cluster-ip 'fd00:10::a'"}},
		{
			name: "Content-Type before MIME-Version, AL2", file: "al2-own-mime", has: []string{"X-Merge: yes", "#cloud-config"},
			lacks: []string{"XX"},
		},
		{
			name: "Content-Type before MIME-Version, AL2023", file: "al2023-own-mime", has: []string{"Content-Type: text/cloud-config"},
			lacks: []string{"X-Merge", "XX"},
		},
		{
			name: "a YAML map is a NodeConfig", file: "al2023-own",
			has: []string{"--//\nContent-Type: application/node.eks.aws\n\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config: {maxPods: 7"}, lacks: []string{"shellscript"},
		},
		{
			name: "a plain script is a shell part", file: "al2023-own-script",
			has: []string{"--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh"},
		},
		{
			name: "the user's max-pods and node-taints are overridden", file: "bottlerocket-own",
			has: []string{
				"max-pods = 58", "'karpenter.sh/unregistered' = [':NoExecute']", "'karpenter.sh/nodepool' = 'general'", "own = 'kept'",
				"text = 'hello'",
			}, lacks: []string{"mine = ", "theirs"},
		},
		{
			name: "bootstrap commands of the user's and RAID0", file: "bottlerocket-own-storage",
			has: []string{"[settings.bootstrap-commands.mine]", "[settings.bootstrap-commands.000-mount-instance-storage]"},
		},
		{
			name: "text of the family Custom is untouched", file: "custom-own", has: []string{"#cloud-config\r\nruncmd: [join, the, cluster]\n"},
			lacks: []string{"golden", "karpenter"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", tc.file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			for _, has := range tc.has {
				if !strings.Contains(string(text), has) {
					t.Errorf("%s.txt lacks %q:\n%s", tc.file, has, text)
				}
			}
			for _, lacks := range tc.lacks {
				if strings.Contains(string(text), lacks) {
					t.Errorf("%s.txt has %q:\n%s", tc.file, lacks, text)
				}
			}
		})
	}
}

// Equal inputs give equal bytes: a change without a cause would replace nodes.
func TestUserDataIsReproducible(t *testing.T) {
	for _, family := range families {
		first, err := Render(family, configurations(t, family)["kubelet"])
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			again, err := Render(family, configurations(t, family)["kubelet"])
			if err != nil || again.Text != first.Text {
				t.Fatalf("%s: %v, the text differs: %s", family, err, cmp.Diff(first.Text, again.Text))
			}
		}
	}
}
