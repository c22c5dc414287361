package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kubeconfig has two contexts, one of an EKS cluster as aws eks update-kubeconfig names it.
const kubeconfig = `{apiVersion: v1, kind: Config, current-context: test,
clusters: [{name: 'arn:aws:eks:eu-west-1:111122223333:cluster/shop', cluster: {server: 'http://127.0.0.1:1'}}, {name: test, cluster: {server: 'http://127.0.0.1:1'}}],
contexts: [{name: production, context: {cluster: 'arn:aws:eks:eu-west-1:111122223333:cluster/shop', user: a}}, {name: test, context: {cluster: test, user: a}}], users: [{name: a, user: {}}]}`

// A flag has one name and one meaning, whichever the command.
func TestCommandsShareTheirFlags(t *testing.T) {
	kube := []string{"kubeconfig", "context", "as", "as-group"}
	for command, want := range map[string][]string{
		"plan":           {"region", "namespace", "output", "output-file", "filename"},
		"instance-types": append(kube, "region", "output", "output-file", "filename"),
		"doctor":         append(kube, "cluster-name", "region", "output", "output-file", "filename"),
		"adopt":          append(kube, "cluster-name", "region"),
		"snapshot":       append(kube, "output", "output-file"),
		"iam-policy":     {"cluster-name", "region", "output", "output-file"},
		"controller":     {"cluster-name"},
		"replay":         {"output", "output-file"},
		"version":        {"output"},
	} {
		cmd, _, err := rootCommand().Find([]string{command})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range want {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", command, name)
			}
		}
		for name, short := range map[string]string{"output": "o", "namespace": "n", "filename": "f"} {
			if f := cmd.Flags().Lookup(name); f != nil && f.Shorthand != short {
				t.Errorf("%s: --%s is -%s, want -%s", command, name, f.Shorthand, short)
			}
		}
	}
}

func TestShellCompletesValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"doctor --context ", []string{"production", "test"}},
		{"doctor --context pro", []string{"production"}},
		{"doctor --cluster-name ", []string{"shop"}},
		{"doctor -o ", []string{"table", "wide", "json", "yaml"}},
		{"plan --output y", []string{"yaml"}},
		{"plan --region us-east-1", []string{"us-east-1"}},
		{"snapshot --context t", []string{"test"}},
		{"instance-types --ami-family AL", []string{"AL2", "AL2023"}},
		{"iam-policy --region eu-west-1", []string{"eu-west-1"}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Setenv("KUBECONFIG", path)
			words := strings.Split(tt.args, " ")
			stdout, _, err := command("", append([]string{"__complete"}, words...)...)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if got := lines[:len(lines)-1]; err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, offers %q, want %q", err, got, tt.want)
			}
		})
	}
}

func TestShellCompletesNamespacesOfTheCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", apiServerOfNothing(t))
	stdout, _, err := command("", "__complete", "plan", "-n", "")
	if err != nil || !strings.HasPrefix(stdout, "kube-system\nshop\n") {
		t.Errorf("%v, offers %q", err, stdout)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if stdout, _, err := command("", "__complete", "plan", "-n", ""); err != nil || !strings.HasPrefix(stdout, ":") {
		t.Errorf("without a cluster: %v, offers %q", err, stdout)
	}
}

func TestKubeconfigFlagWins(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"snapshot"}, {"doctor"}, {"instance-types", "--live"}} {
		_, stderr, err := command("", args...)
		if said := stderr + errorText(err); !strings.Contains(said, "find the cluster: ") || !strings.Contains(said, "none") {
			t.Errorf("%q with a missing KUBECONFIG: %v, %q", args, err, stderr)
		}
	}
	path := apiServerOfNothing(t)
	stdout, _, err := command("", "snapshot", "--kubeconfig", path, "--context", "x", "--as", "jane")
	if err != nil || !strings.Contains(stdout, "kind: Snapshot") {
		t.Errorf("%v, %q", err, stdout)
	}
	if _, _, err := command("", "snapshot", "--kubeconfig", path, "--context", "y"); codeOf(err) != exitError ||
		!strings.Contains(err.Error(), `"y"`) {
		t.Errorf("with a context that is not there: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNamespaceFlagIsForObjectsWithoutOne(t *testing.T) {
	const two = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: other}}"
	stdout, _, err := command(two, "plan", "-f", examplePool, "-f", "-", "-n", "shop", "-o", "json")
	if err != nil || !strings.Contains(stdout, `"shop/a"`) || !strings.Contains(stdout, `"other/b"`) {
		t.Errorf("%v:\n%s", err, stdout)
	}
}
