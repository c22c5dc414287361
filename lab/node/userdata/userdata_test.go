package userdata

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
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

// newCA is a certificate as the control plane's would be, in PEM.
func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// withCA fills the placeholder of the golden texts in.
func withCA(text string, ca []byte) []byte {
	return []byte(strings.ReplaceAll(text, "@CA@", base64.StdEncoding.EncodeToString(ca)))
}

func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDecodeUserDataOfControllers(t *testing.T) {
	ca := newCA(t)
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		file   string
		family Family
		want   Config
	}{
		{"al2-karpenter", AL2, Config{
			ClusterName: "dev", Endpoint: "https://10.0.0.1:6443", LocalDisks: "raid0",
			Labels: map[string]string{"karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "general", "nodegroup": "karpenter"},
			Kubelet: kubelet.KubeletConfiguration{
				ClusterDNS: []string{"10.100.0.10"}, MaxPods: 29, PodsPerCore: 20,
				RegisterWithTaints: []corev1.Taint{unregistered, {Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}},
				SystemReserved:     map[string]string{"memory": "100Mi"}, KubeReserved: map[string]string{"cpu": "80m", "memory": "574Mi"},
				EvictionHard: map[string]string{"memory.available": "5%", "nodefs.available": "10%"},
				EvictionSoft: map[string]string{"memory.available": "1Gi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "1m0s"},
				EvictionMaxPodGracePeriod: 60, ImageGCHighThresholdPercent: new(int32(85)), ImageGCLowThresholdPercent: new(int32(80)),
				CPUCFSQuota: new(false),
			},
		}},
		{"al2-managed", AL2, Config{
			ClusterName: "prod", Endpoint: "https://ABCDEF.gr7.us-east-1.eks.amazonaws.com", UseENIMaxPods: true,
			Labels:  map[string]string{"eks.amazonaws.com/nodegroup": "ng-1", "tier": "web"},
			Kubelet: kubelet.KubeletConfiguration{ClusterDNS: []string{"172.20.0.10"}},
		}},
		{"al2023-karpenter", AL2023, Config{
			ClusterName: "dev", Endpoint: "https://10.0.0.1:6443", ServiceCIDR: "10.100.0.0/16", LocalDisks: "raid0", UseENIMaxPods: true,
			Labels: map[string]string{"team": "a", "env": "prod", "karpenter.sh/nodepool": "general"},
			Kubelet: kubelet.KubeletConfiguration{
				ClusterDNS: []string{"10.100.0.10"}, MaxPods: 58, RegisterWithTaints: []corev1.Taint{unregistered},
				KubeReserved:        map[string]string{"cpu": "80m", "ephemeral-storage": "2Gi"},
				ShutdownGracePeriod: metav1.Duration{Duration: 30 * time.Second},
			},
		}},
		{"bottlerocket-karpenter", Bottlerocket, Config{
			ClusterName: "dev", Endpoint: "https://10.0.0.1:6443", LocalDisks: "raid0", UseENIMaxPods: true,
			Labels: map[string]string{"karpenter.sh/nodepool": "general"},
			Kubelet: kubelet.KubeletConfiguration{
				ClusterDNS: []string{"10.100.0.10"}, MaxPods: 110,
				RegisterWithTaints: []corev1.Taint{
					unregistered,
					{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule},
					{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule},
				},
				KubeReserved: map[string]string{"memory": "1465Mi"}, EvictionHard: map[string]string{"memory.available": "12%"},
				ImageGCHighThresholdPercent: new(int32(85)), CPUCFSQuota: new(true),
			},
		}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			tt.want.Family, tt.want.CA = tt.family, ca
			raw := withCA(golden(t, tt.file), ca)
			for form, text := range map[string][]byte{"plain": raw, "compressed": compress(t, raw)} {
				got, err := Decode(tt.family, text)
				if err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", form, diff)
				}
			}
		})
	}
}

func compress(t *testing.T, raw []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDecodeErrors(t *testing.T) {
	ca := newCA(t)
	bootstrap := func(args string) string { return "#!/bin/bash\n/etc/eks/bootstrap.sh " + args }
	joined := " --apiserver-endpoint https://h --b64-cluster-ca @CA@ "
	nodeConfig := func(spec string) string {
		return "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: " + spec
	}
	cluster := "name: c, apiServerEndpoint: 'https://h', certificateAuthority: '@CA@', cidr: 10.0.0.0/16"
	for _, tt := range []struct {
		name   string
		family Family
		text   string
		want   string
	}{
		{"AL2 with a NodeConfig", AL2, golden(t, "al2023-karpenter"), "no shell script in the user data calls /etc/eks/bootstrap.sh"},
		{"AL2023 with bootstrap.sh", AL2023, golden(t, "al2-karpenter"), "could not find NodeConfig within UserData"},
		{"Bottlerocket with a script", Bottlerocket, golden(t, "al2-managed"), "user data is not TOML settings: line 2"},
		{"AL2023 with TOML", AL2023, golden(t, "bottlerocket-karpenter"), "decode NodeConfig"},
		{
			"Windows with bootstrap.sh", Windows, golden(t, "al2-karpenter"),
			"no <powershell> script in the user data calls Start-EKSBootstrap.ps1",
		},
		{
			"Windows script that calls nothing", Windows, "<powershell>\nWrite-Host Start-EKSBootstrap.ps1\n</powershell>",
			"no <powershell> script",
		},
		{
			"Windows string that does not end", Windows, "<powershell>& 'Start-EKSBootstrap.ps1 -EKSClusterName</powershell>",
			"missing the terminator",
		},
		{
			"Windows without CA", Windows, "<powershell>& Start-EKSBootstrap.ps1 -EKSClusterName c -APIServerEndpoint https://h</powershell>",
			"-Base64ClusterCA are needed",
		},
		{
			"Windows with a parameter that is none", Windows, "<powershell>& Start-EKSBootstrap.ps1 -Cluster c</powershell>",
			"matches parameter name '-Cluster'",
		},
		{
			"Windows with a parameter cut off", Windows, "<powershell>& Start-EKSBootstrap.ps1 -EKSClusterName</powershell>",
			"missing an argument for parameter '-EKSClusterName'",
		},

		{"AL2 script that calls nothing", AL2, "#!/bin/bash\necho /etc/eks/bootstrap.sh c", "no shell script"},
		{"AL2 script that does not end", AL2, "#!/bin/bash\necho 'x", "unexpected EOF"},
		{"AL2 without name", AL2, bootstrap(joined), "CLUSTER_NAME is not defined"},
		{"AL2 without CA", AL2, bootstrap("c --apiserver-endpoint https://h"), "--b64-cluster-ca are needed"},
		{"AL2 with an option cut off", AL2, bootstrap("c --b64-cluster-ca"), "needs a value"},
		{"AL2 with nothing but an option and its value in one", AL2, bootstrap("--b64-cluster-ca=@CA@"), "--b64-cluster-ca are needed"},
		{"unknown kubelet flag", AL2, bootstrap("c" + joined + "--kubelet-extra-args '--node-lables=a=b'"), "unknown flag: --node-lables"},
		{"malformed labels", AL2, bootstrap("c" + joined + "--kubelet-extra-args '--node-labels=a'"), `malformed pair "a"`},
		{"taint without effect", AL2, bootstrap("c" + joined + "--kubelet-extra-args '--register-with-taints=a=b'"), "an effect is needed"},
		{
			"taint with a wrong effect", AL2, bootstrap("c" + joined + "--kubelet-extra-args '--register-with-taints=a=b:NoRun'"),
			`invalid effect "NoRun"`,
		},
		{"max pods in words", AL2, bootstrap("c" + joined + "--kubelet-extra-args --max-pods=many"), `invalid argument "many" for "--max-pods"`},
		{"reserving what cannot be", AL2, bootstrap("c" + joined + "--kubelet-extra-args --kube-reserved=gpu=1"), `cannot reserve "gpu"`},
		{"reserving nonsense", AL2, bootstrap("c" + joined + "--kubelet-extra-args --system-reserved=cpu=fast"), "failed to parse quantity"},

		{"NodeConfig of another version", AL2023, "apiVersion: node.eks.aws/v9\nkind: NodeConfig", "no kind"},
		{
			"NodeConfig without CIDR", AL2023, nodeConfig("{cluster: {name: c, apiServerEndpoint: 'https://h', certificateAuthority: '@CA@'}}"),
			"CIDR is missing",
		},
		{"NodeConfig without name", AL2023, nodeConfig("{}"), "Name is missing"},
		{
			"CA that is not base64", AL2023,
			nodeConfig("{cluster: {name: c, apiServerEndpoint: 'https://h', certificateAuthority: '%%', cidr: 10.0.0.0/16}}"), "not base64",
		},
		{
			"CA that is no certificate", AL2023,
			nodeConfig("{cluster: {name: c, apiServerEndpoint: 'https://h', certificateAuthority: aGk=, cidr: 10.0.0.0/16}}"), "no PEM certificate",
		},
		{
			"plain http", AL2023,
			nodeConfig("{cluster: {name: c, apiServerEndpoint: 'http://h', certificateAuthority: '@CA@', cidr: 10.0.0.0/16}}"), "not an https URL",
		},
		{
			"nonsense CIDR", AL2023, nodeConfig("{cluster: {name: c, apiServerEndpoint: 'https://h', certificateAuthority: '@CA@', cidr: ten}}"),
			"service CIDR",
		},
		{
			"maxPods as text", AL2023, nodeConfig("{cluster: {" + cluster + "}, kubelet: {config: {maxPods: lots}}}"),
			"failed to load kubelet config file",
		},
		{
			"nonsense threshold", AL2023, nodeConfig("{cluster: {" + cluster + "}, kubelet: {config: {evictionHard: {memory.available: 120%}}}}"),
			"not a percentage",
		},
		{
			"soft eviction without grace", AL2023,
			nodeConfig("{cluster: {" + cluster + "}, kubelet: {config: {evictionSoft: {memory.available: 10%}}}}"), "grace period must be specified",
		},
		{
			"DNS that is no address", AL2023, nodeConfig("{cluster: {" + cluster + "}, kubelet: {config: {clusterDNS: [kube-dns]}}}"),
			"cluster DNS address",
		},
		{
			"MIME that breaks off", AL2023,
			"Content-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: application/node.eks.aws\n\nkind", "read part 1",
		},

		{"Bottlerocket without cluster", Bottlerocket, "[settings.kubernetes]\ncluster-certificate = '@CA@'", "cluster name is missing"},
		{"Bottlerocket with a wrong type", Bottlerocket, "[settings.kubernetes]\nmax-pods = 'x'", "not TOML settings"},
		{
			"Bottlerocket taint without effect", Bottlerocket, "[settings.kubernetes]\ncluster-certificate = '@CA@'\nnode-taints = {a = 'b'}",
			"an effect is needed",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode(tt.family, withCA(tt.text, ca))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestParseImage(t *testing.T) {
	for _, tt := range []struct {
		name string
		want Image
	}{
		{"amazon-eks-node-1.31-v20250123", Image{Family: AL2, Kubernetes: "1.31", Release: "v20250123"}},
		{"amazon-eks-arm64-node-1.31-v20250123", Image{Family: AL2, Kubernetes: "1.31", Release: "v20250123"}},
		{"amazon-eks-gpu-node-1.31-v20250123", Image{Family: AL2, Kubernetes: "1.31", Release: "v20250123"}},
		{"amazon-eks-node-al2023-x86_64-standard-1.36-v20260715", Image{Family: AL2023, Kubernetes: "1.36", Release: "v20260715"}},
		{"amazon-eks-node-al2023-arm64-nvidia-1.36-v20260715", Image{Family: AL2023, Kubernetes: "1.36", Release: "v20260715"}},
		{"bottlerocket-aws-k8s-1.31-x86_64-v1.32.0-cacc4ce9", Image{Family: Bottlerocket, Kubernetes: "1.31", Release: "v1.32.0-cacc4ce9"}},
		{"bottlerocket-aws-k8s-1.31-nvidia-aarch64-v1.32.0-cacc4ce9", Image{
			Family: Bottlerocket, Kubernetes: "1.31",
			Release: "v1.32.0-cacc4ce9",
		}},
		{"Windows_Server-2022-English-Core-EKS_Optimized-1.31-2025.01.15", Image{
			Family: Windows, Kubernetes: "1.31", Release: "2025.01.15",
			Server: "2022",
		}},
		{"al2023-ami-2023.6.20250115.0-kernel-6.1-x86_64", Image{}},
		{"", Image{}},
	} {
		if got := ParseImage(tt.name); got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The values are those of a real m5.xlarge: 4 vCPU, 4 interfaces with 15 addresses each.
func TestWithDefaults(t *testing.T) {
	m5xlarge := InstanceLimits{VCPUs: 4, MaxENIs: 4, IPv4PerENI: 15}
	evictions := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}
	for _, tt := range []struct {
		name string
		cfg  Config
		want kubelet.KubeletConfiguration
	}{
		{"nothing given", Config{Family: AL2023, UseENIMaxPods: true}, kubelet.KubeletConfiguration{
			MaxPods: 58, KubeReserved: map[string]string{"cpu": "80m", "memory": "893Mi", "ephemeral-storage": "1Gi"}, EvictionHard: evictions,
		}},
		{"AL2023 merges key by key", Config{Family: AL2023, UseENIMaxPods: true, Kubelet: kubelet.KubeletConfiguration{
			MaxPods: 20, KubeReserved: map[string]string{"cpu": "1"}, EvictionHard: map[string]string{"memory.available": "5%"},
		}}, kubelet.KubeletConfiguration{
			MaxPods: 20, KubeReserved: map[string]string{"cpu": "1", "memory": "893Mi", "ephemeral-storage": "1Gi"},
			EvictionHard: map[string]string{"memory.available": "5%", "nodefs.available": "10%", "nodefs.inodesFree": "5%"},
		}},
		{"AL2 replaces whole maps", Config{Family: AL2, Kubelet: kubelet.KubeletConfiguration{
			KubeReserved: map[string]string{"cpu": "1"},
		}}, kubelet.KubeletConfiguration{MaxPods: 110, KubeReserved: map[string]string{"cpu": "1"}, EvictionHard: evictions}},
		{
			"pods per core",
			Config{Family: AL2023, UseENIMaxPods: true, Kubelet: kubelet.KubeletConfiguration{PodsPerCore: 3}},
			kubelet.KubeletConfiguration{
				MaxPods: 12, PodsPerCore: 3, KubeReserved: map[string]string{"cpu": "80m", "memory": "893Mi", "ephemeral-storage": "1Gi"},
				EvictionHard: evictions,
			},
		},
		{"Bottlerocket reserves for its limit", Config{
			Family: Bottlerocket, UseENIMaxPods: true,
			Kubelet: kubelet.KubeletConfiguration{MaxPods: 110},
		}, kubelet.KubeletConfiguration{
			MaxPods: 110, KubeReserved: map[string]string{"cpu": "80m", "memory": "1465Mi", "ephemeral-storage": "1Gi"}, EvictionHard: evictions,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.cfg.WithDefaults(m5xlarge)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestValidateLabels(t *testing.T) {
	for _, tt := range []struct{ label, want string }{
		{"karpenter.sh/nodepool", ""},
		{"node.kubernetes.io/anything", ""},
		{"sub.kubelet.kubernetes.io/x", ""},
		{"topology.kubernetes.io/zone", ""},
		{"kubernetes.io/role", "unknown 'kubernetes.io' or 'k8s.io' labels"},
		{"node-role.kubernetes.io/worker", "unknown 'kubernetes.io' or 'k8s.io' labels"},
		{"node-restriction.kubernetes.io/team", "unknown 'kubernetes.io' or 'k8s.io' labels"},
		{"topology.ebs.csi.k8s.io/zone", "unknown 'kubernetes.io' or 'k8s.io' labels"},
		{"a/b/c", "invalid node labels"},
	} {
		err := ValidateLabels(map[string]string{tt.label: "v"})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.label, err, tt.want)
		}
	}
}

// The script of the images knows options only with their value as a word of its own.
func TestBootstrapScriptIgnoresUnknownCommands(t *testing.T) {
	ca := newCA(t)
	text := "#!/bin/bash\nsudo /etc/eks/bootstrap.sh c --use-max-pods=false --some-option x --apiserver-endpoint https://h --b64-cluster-ca @CA@ && echo done"
	got, err := Decode(AL2, withCA(text, ca))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Family: AL2, ClusterName: "c", Endpoint: "https://h", CA: ca, UseENIMaxPods: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
