package bootstrap

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// plain is a node of a NodePool without any settings.
func plain() Input {
	return Input{
		Cluster: Cluster{
			Name: "golden", Endpoint: "https://GOLDEN.gr7.us-east-1.eks.amazonaws.com", CABundle: "R09MREVO", ServiceCIDR: "10.100.0.0/16",
			DNS: "10.100.0.10",
		},
		Labels: map[string]string{
			"karpenter.sh/nodepool":           "general",
			"karpenter.sh/capacity-type":      "spot",
			"karpenter.sh/do-not-sync-taints": "true",
		},
		Taints:  NodeTaints(nil, nil),
		MaxPods: 58,
	}
}

func with(in Input, change func(*Input)) Input {
	change(&in)
	return in
}

func TestUnknownBottlerocketSettingsAreNamed(t *testing.T) {
	in := plain()
	in.UserData = `[settings.kubernetes]
no-such-key = true
log-level = 3
[settings.kubernetes.static-pods.mine]
enabled = true
manifst = "x"
[settings.kubernetes.topology-manager-policy-options]
max-allowable-numa-nodes = 4
prefer-far = true
[settings.kubernetes.eviction-minimum]
any = "1"
[settings.kubernetes.node-labels]
"anything.goes/here" = "x"
`
	got, err := Render(awsv1.AMIFamilyBottlerocket, in)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"settings.kubernetes.eviction-minimum", "settings.kubernetes.no-such-key",
		"settings.kubernetes.static-pods.mine.manifst", "settings.kubernetes.topology-manager-policy-options.prefer-far",
	}
	if diff := gocmp.Diff(want, got.Dropped); diff != "" {
		t.Error(diff)
	}
	for _, kept := range []string{"log-level = 3", "enabled = true", "max-allowable-numa-nodes = 4", "anything.goes/here"} {
		if !strings.Contains(got.Text, kept) {
			t.Errorf("%q is gone from\n%s", kept, got.Text)
		}
	}
	for _, gone := range []string{"no-such-key", "manifst", "prefer-far", "eviction-minimum"} {
		if strings.Contains(got.Text, gone) {
			t.Errorf("%q is still in\n%s", gone, got.Text)
		}
	}
}

// mixed is a MIME message of parts, each with its header.
func mixed(parts ...string) string {
	out := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"X\"\n\n"
	for _, p := range parts {
		out += "--X\n" + p
	}
	return out + "--X--\n"
}

// A part without a header is what its text begins with, and headers are of any case.
func TestScriptsInPartsWithoutAHeaderRun(t *testing.T) {
	for _, family := range []string{awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023} {
		for name, text := range map[string]string{
			"no header": mixed("\n#!/bin/bash\necho mine\n"), "lower case": strings.Replace(mixed("\n#!/bin/bash\necho mine\n"), "MIME-Version", "mime-version", 1),
		} {
			rendered, err := Render(family, with(plain(), func(in *Input) { in.UserData = text }))
			if err != nil || !strings.Contains(rendered.Text, "Content-Type: "+shellScript+"\n\n#!/bin/bash\necho mine") {
				t.Errorf("%s, %s: %v\n%s", family, name, err, rendered.Text)
			}
		}
	}
	yaml := "---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n"
	if _, err := Render(awsv1.AMIFamilyAL2023, with(plain(), func(in *Input) { in.UserData = yaml })); err != nil {
		t.Errorf("YAML that begins with ---: %v", err)
	}
}

func TestRenderErrors(t *testing.T) {
	for _, tc := range []struct {
		name, family string
		change       func(*Input)
		want         string
	}{
		{"invalid TOML", awsv1.AMIFamilyBottlerocket, func(in *Input) { in.UserData = "echo hello" }, "parse TOML"},
		{"settings that are no table", awsv1.AMIFamilyBottlerocket, func(in *Input) { in.UserData = "settings = 3" }, "settings is not a table"},
		{
			"MIME without boundary", awsv1.AMIFamilyAL2, func(in *Input) { in.UserData = "MIME-Version: 1.0\nContent-Type: text/plain\n\nhello" },
			"not multipart",
		},
		{"MIME without end", awsv1.AMIFamilyAL2023, func(in *Input) {
			in.UserData = "Content-Type: multipart/mixed; boundary=\"X\"\n\n--X\nContent-Type: text/plain\n\nhello"
		}, "MIME part"},
		{"MIME without the header of a message", awsv1.AMIFamilyAL2023, func(in *Input) {
			in.UserData = "--X\nContent-Type: text/x-shellscript\n\n#!/bin/bash\necho hello\n--X--"
		}, `spec.userData: begins like MIME, with "--X", and lacks the header of a message`},
		{"MIME after another header", awsv1.AMIFamilyAL2, func(in *Input) {
			in.UserData = "Subject: nodes\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"X\"\n\n--X\n\n#!/bin/bash\n--X--"
		}, `spec.userData: begins like MIME, with "Subject: nodes"`},
		{"a script directly after the boundary", awsv1.AMIFamilyAL2023, func(in *Input) {
			in.UserData = mixed("#!/bin/bash\necho hello\n")
		}, "spec.userData: read MIME part 1: "},
		{"a part without a type that nothing uses", awsv1.AMIFamilyAL2023, func(in *Input) {
			in.UserData = mixed("Content-Type: text/x-shellscript\n\n#!/bin/bash\n", "\necho hello\n")
		}, `spec.userData: MIME part 2, which begins with "echo hello", has no Content-Type`},
		{"the same for AL2", awsv1.AMIFamilyAL2, func(in *Input) { in.UserData = mixed("\necho hello\n") }, "MIME part 1"},
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

// A kubelet must not set labels in Kubernetes' own domains.
func TestNodeLabels(t *testing.T) {
	got := NodeLabels(map[string]string{
		"kubernetes.io/arch": "x", "foo.kubernetes.io/bar": "x", "k8s.io/a": "x", "topology.k8s.io/b": "x",
		"node-restriction.kubernetes.io/c": "x", "x.node-restriction.kubernetes.io/d": "x",
		"topology.k8s.aws/zone-id": "kept", "notkubernetes.io/e": "kept", "plain": "kept", "karpenter.sh/nodepool": "kept",
	})
	want := map[string]string{
		"topology.k8s.aws/zone-id": "kept",
		"notkubernetes.io/e":       "kept",
		"plain":                    "kept",
		"karpenter.sh/nodepool":    "kept",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A startup taint equal to the unregistered taint is not added twice.
func TestUnregisteredTaintIsAddedOnce(t *testing.T) {
	unregistered := corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}
	other := corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}
	for name, startup := range map[string][]corev1.Taint{"not given": nil, "given as startup taint": {unregistered}} {
		if diff := gocmp.Diff([]corev1.Taint{other, unregistered}, NodeTaints([]corev1.Taint{other}, startup)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The version from which on the image binds the directories by itself.
func TestBottlerocketBindsDirs(t *testing.T) {
	for version, want := range map[string]bool{
		"latest": true, "v1.46.0": true, "1.46.1": true, "v2.0.0": true,
		"v1.45.0": false, "1.46": false, "": false, "v1.x.0": false,
	} {
		t.Run("Bottlerocket "+cmp.Or(version, "unknown"), func(t *testing.T) {
			binds := BottlerocketBindsDirs(version)
			got, err := Render(awsv1.AMIFamilyBottlerocket, with(plain(), func(in *Input) { in.RAID0, in.BottlerocketBindsDirs = true, binds }))
			if err != nil {
				t.Fatal(err)
			}
			if named := strings.Contains(got.Text, "'bind', '--dirs', '/var/lib/containerd'"); binds != want || named == want {
				t.Errorf("binds by itself: %v, want %v; directories named: %v", binds, want, named)
			}
		})
	}
}

// A kubelet does not start with an expression as a reservation: only results are passed on.
func TestOnlyResolvedReservesReachTheNode(t *testing.T) {
	in := plain()
	in.RawKubelet = []byte(
		`{"kubeReserved": {"cpu": "vcpus * 10"}, "systemReserved": {"memory": "memory_mib / 50"}, "maxPods": "20", "podPidsLimit": 4096}`,
	)
	in.Kubelet.KubeReserved = map[string]string{"cpu": "80m"}
	got, err := Render(awsv1.AMIFamilyAL2023, in)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"cpu: 80m": true, "podPidsLimit: 4096": true, "maxPods: 58": true, "vcpus": false, "systemReserved": false} {
		if strings.Contains(got.Text, text) != want {
			t.Errorf("%q in the user data: %v, want %v\n%s", text, !want, want, got.Text)
		}
	}
}

// AL2023 sees only the content type of a part, so its body must not depend on another header.
func TestEncodedPartsAreDecoded(t *testing.T) {
	in := plain()
	in.UserData = "Content-Type: multipart/mixed; boundary=\"X\"\n\n--X\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n" +
		"IyEvYmluL3NoCmVjaG8gaGVs\nbG8K\n--X--\n"
	for family, want := range map[string]string{awsv1.AMIFamilyAL2023: "#!/bin/sh\necho hello\n", awsv1.AMIFamilyAL2: "Content-Transfer-Encoding: base64"} {
		got, err := Render(family, in)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.Text, want) {
			t.Errorf("%s: %q is not in\n%s", family, want, got.Text)
		}
	}
}
