package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// severalContexts is a kubeconfig file with two contexts of an API server without nodes, and one of a server that does not answer.
func severalContexts(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(apiServerOfNothing(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "several")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: east, users: [{name: x, user: {}}],
clusters: [{name: x, cluster: {server: %q}}, {name: dead, cluster: {server: 'http://127.0.0.1:1'}}],
contexts: [{name: east, context: {cluster: x, user: x}}, {name: west, context: {cluster: x, user: x}},
  {name: gone, context: {cluster: dead, user: x}}]}`,
		config.Clusters["x"].Server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOneTableOverSeveralClusters(t *testing.T) {
	t.Setenv("CLUSTER_NAME", "not-that-of-several-clusters")
	path := severalContexts(t)
	for _, tt := range []struct {
		args, columns string
		// exit is that of the clusters that answer.
		exit exitCode
	}{
		{"doctor", "CONTEXT ERRORS WARNINGS NOT CHECKED WORST", exitIncomplete},
		{"assess --prices catalog --region us-east-1", "CONTEXT NODES PODS $/MONTH CONSOLIDATED SAVES % LOWER BOUND UNPRICED", exitOK},
		{"top --once --region us-east-1", "CONTEXT NODES PODS PENDING CPU MEMORY $/H CHANGES AFTER LOWER BOUND", exitOK},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := append(strings.Fields(tt.args), "--kubeconfig", path)
			stdout, stderr, err := command("", append(args, "--context", "west", "--context", "east", "--context", "west")...)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if codeOf(err) != tt.exit || len(lines) < 3 || strings.Join(strings.Fields(lines[0]), " ") != tt.columns ||
				!strings.HasPrefix(lines[1], "west ") || !strings.HasPrefix(lines[2], "east ") {
				t.Errorf("%v\n%s%s", err, stdout, stderr)
			}
			if sums := strings.HasPrefix(tt.args, "assess"); sums != strings.Contains(stdout, "east is the cluster of west: counted once") {
				t.Errorf("both contexts are of one cluster:\n%s", stdout)
			}
			stdout, stderr, err = command("", append(args, "--all-contexts")...)
			if codeOf(err) != exitIncomplete || !strings.Contains(stdout, "\nNot read: 1 of 3 clusters\n  gone: ") ||
				!strings.Contains(stdout, "127.0.0.1:1") || !strings.Contains(stdout, "\nwest ") {
				t.Errorf("with a server that does not answer: %v\n%s%s", err, stdout, stderr)
			}
			var document struct {
				Clusters []struct {
					Context, Error string
					Report         map[string]any
				}
			}
			stdout, stderr, err = command("", append(args, "--all-contexts", "-o", "json")...)
			if failed := json.Unmarshal([]byte(stdout), &document); failed != nil || codeOf(err) != exitIncomplete || len(document.Clusters) != 3 {
				t.Fatalf("%v, %v\n%s%s", failed, err, stdout, stderr)
			}
			for _, c := range document.Clusters {
				if dead := c.Context == "gone"; dead != (c.Error != "") || dead != (c.Report == nil) {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

func TestSeveralContextsAreRefusedWhereOneIsMeant(t *testing.T) {
	path := severalContexts(t)
	for args, want := range map[string]string{
		"doctor --context east --context nowhere":                     `no context "nowhere"; it has east, gone, west`,
		"doctor --context east --all-contexts":                        "--context and --all-contexts: use only one of them",
		"doctor --all-contexts --cluster-name shop":                   "--cluster-name is for one cluster",
		"doctor --all-contexts --region eu-west-1":                    "--region is for one cluster",
		"assess --all-contexts --html x.html":                         "--html is for one cluster",
		"assess --all-contexts -f testdata/assess.yaml":               "-f and --kubeconfig",
		"top --once --all-contexts --context east":                    "use only one of them",
		"console --all-contexts --recording x.rec":                    "--recording is for one cluster",
		"console --context east --context west --cluster-name shop":   "--cluster-name is for one cluster",
		"snapshot --context east --all-contexts":                      "--all-contexts",
		"doctor --all-contexts --fix-manifests":                       "--fix-manifests is for one cluster",
		"top --once --context east --context west -f testdata/x.yaml": "-f and --kubeconfig",
	} {
		_, stderr, err := command("", append(strings.Fields(args), "--kubeconfig", path)...)
		if said := stderr + errorText(err); codeOf(err) != exitUsage || !strings.Contains(said, want) {
			t.Errorf("%s: %v\n%s", args, err, said)
		}
	}
}

func TestTheEKSClusterOfAContextIsThatOfItsARN(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	k := kubeFlags{kubeconfig: path}
	for context, want := range map[string][2]string{"production": {"shop", "eu-west-1"}, "test": {}, "none": {}} {
		if name, region := k.eksCluster(context); name != want[0] || region != want[1] {
			t.Errorf("%s: %q in %q", context, name, region)
		}
	}
}

// hostileContexts is a kubeconfig file that somebody else has written.
func hostileContexts(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostile")
	text := `{apiVersion: v1, kind: Config, current-context: east, clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}],
users: [{name: x, user: {}},
  {name: asks, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "false", interactiveMode: Always}}},
  {name: hangs, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sleep, args: ["5"], interactiveMode: Never}}}],
contexts: [{name: "west\nall  \u001b[2J\u202e", context: {cluster: x, user: x}}, {name: "", context: {cluster: x, user: x}},
  {name: asks, context: {cluster: x, user: asks}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAContextOfSomebodyElse(t *testing.T) {
	path := hostileContexts(t)
	for _, args := range []string{"doctor", "assess --region us-east-1", "top --once --region us-east-1"} {
		stdout, stderr, err := command("", append(strings.Fields(args), "--kubeconfig", path, "--all-contexts")...)
		for line := range strings.Lines(stdout + stderr) {
			if strings.ContainsAny(line, "\x1b\u202e") || strings.HasPrefix(line, "all") {
				t.Errorf("%s: %q", args, line)
			}
		}
		if codeOf(err) != exitIncomplete || !strings.Contains(stdout, "Not read: 2 of 2 clusters") ||
			!strings.Contains(stdout, "\n  west?all  ?[2J?: ") {
			t.Errorf("%s: %v\n%s%s", args, err, stdout, stderr)
		}
	}
	_, _, err := command("", "doctor", "--kubeconfig", path, "--context", "a", "--context", "b")
	if err == nil || strings.ContainsAny(err.Error(), "\n\x1b\u202e") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = command("", "doctor", "--kubeconfig", path, "--all-contexts")
	if err == nil || strings.Contains(err.Error(), "has no context") {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// A command for credentials that does not end keeps neither the table of other clusters, nor the shell of a person who interrupts.
func TestACommandForCredentialsThatHangs(t *testing.T) {
	k := kubeFlags{kubeconfig: hostileContexts(t), several: true}
	config, err := clientcmd.LoadFromFile(k.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts["asks"].AuthInfo = "hangs"
	if err := clientcmd.WriteToFile(*config, k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	one := k.of("asks")
	rest, err := one.config()
	if err != nil {
		t.Fatal(err)
	}
	if !rest.ExecProvider.StdinUnavailable {
		t.Error("commands of several clusters would ask one person at once")
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := one.reach(interrupted, rest); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := one.reach(late, rest); err == nil || !strings.Contains(err.Error(), "the command for credentials") {
		t.Errorf("late: %v", err)
	}
}

// top has to restore a terminal, so that it finishes by itself when it is interrupted.
func TestInterruptedTopOverSeveralClustersPrintsNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout strings.Builder
	root := rootCommand()
	root.SetArgs([]string{"top", "--once", "--all-contexts", "--kubeconfig", severalContexts(t)})
	root.SetOut(&stdout)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); codeOf(err) != exitInterrupted || stdout.Len() > 0 {
		t.Errorf("%v\n%s", err, stdout.String())
	}
}
