package bootstrap

import (
	"errors"
	"io"
	"mime/multipart"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// bootstrapped are the families with user data of ours.
var bootstrapped = families[:len(families)-1]

// runs executes the shell script that cloud-init would, with bootstrap.sh replaced by one that prints its arguments, one in a line.
func runs(t *testing.T, script string) []string {
	t.Helper()
	dir := t.TempDir()
	fake := filepath.Join(dir, "bootstrap.sh")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(script, "2>&1\n") // the log on the instance's console
	if !found {
		t.Fatalf("no redirection in\n%s", script)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.Replace(script, "/etc/eks/bootstrap.sh", fake, 1))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, script)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the script has made files: %v, %v", entries, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// Nothing in a NodeClaim, an EC2NodeClass or the cluster runs as a command on the node: a value either reaches the
// bootstrap script unchanged, or is rejected with the name of its field.
func TestNoValueRunsAsACommandOnTheNode(t *testing.T) {
	for field, set := range map[string]func(in *Input, value string){
		"label value":      func(in *Input, v string) { in.Labels["team"] = v },
		"label key":        func(in *Input, v string) { in.Labels[v] = "a" },
		"taint value":      func(in *Input, v string) { in.Taints[0].Value = v },
		"taint key":        func(in *Input, v string) { in.Taints[0].Key = v },
		"taint effect":     func(in *Input, v string) { in.Taints[0].Effect = corev1.TaintEffect(v) },
		"cluster name":     func(in *Input, v string) { in.Cluster.Name = v },
		"cluster endpoint": func(in *Input, v string) { in.Cluster.Endpoint = v },
		"cluster CA":       func(in *Input, v string) { in.Cluster.CABundle = v },
		"service CIDR":     func(in *Input, v string) { in.Cluster.ServiceCIDR = v },
		"cluster DNS":      func(in *Input, v string) { in.Cluster.DNS = v },
		"kubelet DNS":      func(in *Input, v string) { in.Kubelet.ClusterDNS = []string{v} },
		"reserved":         func(in *Input, v string) { in.Kubelet.KubeReserved = map[string]string{"cpu": v} },
		"reserved key":     func(in *Input, v string) { in.Kubelet.SystemReserved = map[string]string{v: "1"} },
		"eviction":         func(in *Input, v string) { in.Kubelet.EvictionHard = map[string]string{"memory.available": v} },
		"soft eviction":    func(in *Input, v string) { in.Kubelet.EvictionSoft = map[string]string{"memory.available": v} },
		"grace period": func(in *Input, v string) {
			in.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": v}
		},
	} {
		for _, family := range bootstrapped {
			t.Run(family+" "+field, func(t *testing.T) {
				for _, value := range hostile {
					if len(validation.IsValidLabelValue(value)) == 0 {
						continue
					}
					in := plain()
					in.Taints = NodeTaints([]corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, nil)
					set(&in, value)
					got, err := Render(family, in)
					var refused *NotEncodableError
					if errors.As(err, &refused) {
						if refused.Field == "" || refused.Why == "" || refused.Fix == "" {
							t.Errorf("%q is refused by %q", value, err)
						}
						continue
					}
					if err != nil || strings.ContainsAny(value, "$`'\"\n\\ ;\u2018\u2019\u201a\u201b") {
						t.Errorf("%q: %v, rendered as\n%s", value, err, got.Text)
					}
				}
			})
		}
	}
}

func TestRefusedLabelNamesItsCauseAndRemedy(t *testing.T) {
	in := plain()
	in.Labels["team"] = "x'$(touch /tmp/pwn)'"
	_, err := Render(awsv1.AMIFamilyAL2, in)
	if err == nil {
		t.Fatal("rendered")
	}
	for _, part := range []string{`label "team" of the node has the value "x'$(touch /tmp/pwn)'"`, "alphanumeric", "change the labels or requirements of the NodePool"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
}

// The quotes are safe on their own, even if a check let a value through.
func TestArgumentsReachTheBootstrapScriptUnchanged(t *testing.T) {
	for _, value := range hostile {
		if value == "" || strings.ContainsAny(value, "\n\r\x00") {
			continue // arguments are compared by lines, and without a CA bundle Windows has one argument less
		}
		in := plain()
		in.Cluster.Name, in.Cluster.Endpoint, in.Cluster.CABundle = value, "https://"+value, value+value
		in.Labels = map[string]string{"team": value}
		k := kubelet{maxPods: 58}
		k.ClusterDNS = []string{value}
		want := []string{
			value, "--apiserver-endpoint", "https://" + value, "--b64-cluster-ca", value + value, "--dns-cluster-ip", value,
			"--use-max-pods", "false", "--kubelet-extra-args", strings.Join(flags(in, k), " "),
		}
		if diff := cmp.Diff(want, runs(t, al2Script(in, k))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
		script := windows(in, k)
		_, script, _ = strings.Cut(script, "-EKSClusterName ")
		for _, arg := range []struct{ value, next string }{
			{value, " -APIServerEndpoint "},
			{"https://" + value, " -Base64ClusterCA "},
			{value + value, " -KubeletExtraArgs "},
			{strings.Join(flags(in, k), " "), " -DNSClusterIP "},
			{value, "\n</powershell>"},
		} {
			got, rest, ok := readPowerShell(script)
			if !ok || got != arg.value || !strings.HasPrefix(rest, arg.next) {
				t.Fatalf("%q: PowerShell reads %q, then %q, %v", arg.value, got, rest, ok)
			}
			script = strings.TrimPrefix(rest, arg.next)
		}
	}
}

// The kubelet's configuration reaches nodeadm and Bottlerocket through encoders of their formats.
func TestKubeletConfigurationSurvivesYAMLAndTOML(t *testing.T) {
	for _, value := range hostile {
		if strings.ContainsAny(value, "\x00\r") {
			continue
		}
		in, k := plain(), kubelet{raw: map[string]any{"staticPodURL": value, value + "x": "y"}}
		in.UserData = "" // nodeadm merges nothing
		text, err := al2023(in, k)
		if strings.Contains(value, "\x7f") {
			if err == nil || !strings.Contains(err.Error(), "change spec.kubelet") {
				t.Errorf("YAML has no way to write %q, and says %v", value, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		parts := partsOf(t, text)
		if len(parts) != 1 {
			t.Fatalf("%q makes %d parts of\n%s", value, len(parts), text)
		}
		var config nodeadmConfig
		if err := yaml.Unmarshal([]byte(parts[0]), &config); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		if got := config.Spec.Kubelet.Config; got["staticPodURL"] != value || got[value+"x"] != "y" {
			t.Errorf("%q comes through YAML as %v", value, got)
		}
		k.EvictionHard = map[string]string{"memory.available": value, value + "x": "y"}
		in.Labels = map[string]string{"team": value}
		got, err := bottlerocket(in, k)
		if err != nil {
			t.Fatal(err)
		}
		var root struct {
			Settings struct {
				Kubernetes struct {
					Eviction map[string]string `toml:"eviction-hard"`
					Labels   map[string]string `toml:"node-labels"`
				} `toml:"kubernetes"`
			} `toml:"settings"`
		}
		decoder := toml.NewDecoder(strings.NewReader(got.Text))
		if err := decoder.Decode(&root); err != nil {
			t.Errorf("%q: %v\n%s", value, err, got.Text)
			continue
		}
		if diff := cmp.Diff(k.EvictionHard, root.Settings.Kubernetes.Eviction); diff != "" ||
			root.Settings.Kubernetes.Labels["team"] != value {
			t.Errorf("%q comes through TOML as %v", value, root)
		}
		var all struct{ Settings map[string]any }
		if err := toml.Unmarshal([]byte(got.Text), &all); err != nil || len(all.Settings) != 1 {
			t.Errorf("%q makes settings of its own: %v, %v", value, all.Settings, err)
		}
	}
}

// A part of the user's that has our boundary at the start of a line stays one part, and ours stay unchanged.
func TestBoundaryInsideAPartDoesNotSplitIt(t *testing.T) {
	for _, own := range []string{
		"#!/bin/sh\ncat <<EOF\n--//\nContent-Type: text/x-shellscript\n\nnot a part\n--//--\nEOF\n", "--//--\n--//-\n--//----\nhello", "#!/bin/sh\r\n\r--//\r\n",
	} {
		for _, family := range []string{awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023} {
			in := plain()
			in.UserData = own
			got, err := Render(family, in)
			if err != nil {
				t.Fatal(err)
			}
			parts := partsOf(t, got.Text)
			if want := strings.TrimSpace(unix(own)); len(parts) != 2 || strings.TrimSpace(parts[0]) != want {
				t.Errorf("%s: %q is read as %q", family, own, parts)
			}
		}
	}
}

// partsOf are the bodies of a message's parts.
func partsOf(t *testing.T, text string) []string {
	t.Helper()
	reader, err := readMultipart(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var out []string
	for {
		var p *multipart.Part
		if p, err = reader.NextPart(); errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(body))
	}
}
