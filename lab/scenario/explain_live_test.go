package scenario_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

// lister is a user that may list what explain depends on, and nothing else.
const lister = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lister}
rules:
  - {verbs: [list], apiGroups: [""], resources: [
      namespaces, nodes, persistentvolumes, persistentvolumeclaims, services, replicationcontrollers, pods]}
  - {verbs: [list], apiGroups: [apps], resources: [daemonsets, replicasets, statefulsets]}
  - {verbs: [list], apiGroups: [karpenter.sh, karpenter.k8s.aws], resources: ["*"]}
  - {verbs: [list], apiGroups: [storage.k8s.io], resources: [csinodes, storageclasses]}
  - {verbs: [list], apiGroups: [policy], resources: [poddisruptionbudgets]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lister}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lister}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: lister}]
`

// Up runs the sample. Each verb of explain, and each tool of mcp, explains its objects to a user that may only list. One price of a node
// holds everywhere. The lab leaves nothing.
func TestUpRunsTheSampleThatExplainExplainsByLists(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "up")
	s.Await(t, "pods: 0 pending, 5 running", runTimeout)
	s.Await(t, "scale deployment/sample --replicas 20", time.Second)
	s.Await(t, "Why ", runTimeout) // several nodes are launched for five pods
	if out := s.Output(); strings.Contains(out, "Unconsolidatable") {
		t.Errorf("the screen shows Unconsolidatable events of new nodes:\n%s", out)
	}
	if children := s.Children(t); len(children) != components {
		t.Errorf("%d processes were started, want %d", len(children), components)
	}
	account := environment(t, s)
	c := liveCluster{t, withoutAccount(account)}
	c.kubectl(lister, "apply", "-f", "-")
	pool := c.kubectl("", "get", "nodepools", "-o", "jsonpath={.items[0].metadata.name}")[0]
	nodes := c.staying(pool)
	if len(nodes) == 0 {
		t.Fatal("the cluster has no nodes that stay")
	}
	pod := c.kubectl("", "get", "pods", "-l", "app=sample", "-o", "jsonpath={.items[0].metadata.name} {.items[0].spec.nodeName}")
	agent := c.agent()
	for node, claim := range nodes {
		const why = "allow no node to go now"
		c.explains("node", node, claim, pool, why)
		c.explains("nodeclaim", claim, node, pool, why)
		agent.answers("explain_node", `{"name":"`+node+`"}`, why)
		agent.answers("explain_nodeclaim", `{"name":"`+claim+`"}`, why)
	}
	c.explains("nodepool", pool, "0 nodes at all times", "Empty")
	c.explains("pod", "default/"+pod[0], pod[1])
	agent.answers("explain_nodepool", `{"name":"`+pool+`"}`, "nodepool "+pool+" has ")
	agent.answers("explain_pod", `{"namespace":"default","name":"`+pod[0]+`"}`, pod[1])
	agent.answers("explain_node", `{"name":"nothing"}`, `the cluster has no Node "nothing"`)
	agent.answers("plan", `{}`, "0 without a node")
	agent.answers("assess", `{}`, "Consolidated within all protections")
	agent.answers("doctor", `{}`, "AWS cannot be read: set --cluster-name")
	agent.closes()
	liveCluster{t, account}.onePrice(consoleAddress.FindString(s.Await(t, "The console of cluster", runTimeout)), nodes)
	s.InterruptAndCheck(t, exitTimeout)
}

// environment is what the lab exports for its cluster.
func environment(t *testing.T, s *labtest.Session) []string {
	t.Helper()
	line := s.Await(t, `eval "$(`, runTimeout)
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", line[strings.Index(line, "eval"):]+"; env -0")
	cmd.Dir, cmd.Env = labtest.Root, append(os.Environ(), "TMPDIR="+s.Temp)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\x00"), func(v string) bool { return v == "" })
}

// withoutAccount leaves out what is about AWS.
func withoutAccount(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "AWS_") || strings.HasPrefix(v, "CLUSTER_NAME=")
	})
}

// liveCluster is a cluster, and the variables that name it.
type liveCluster struct {
	t   *testing.T
	env []string
}

// kubectl runs as the administrator, and returns the words that it prints.
func (c liveCluster) kubectl(stdin string, args ...string) []string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), labtest.Binary(c.t), append([]string{"kubectl"}, args...)...)
	cmd.Env, cmd.Stdin = c.env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.Fields(string(out))
}

// staying closes the budgets of a NodePool, and returns its nodes that no command removes, with their NodeClaims.
func (c liveCluster) staying(pool string) map[string]string {
	c.t.Helper()
	c.kubectl("", "patch", "nodepool", pool, "--type=merge", "-p", `{"spec":{"disruption":{"budgets":[{"nodes":"0"}]}}}`)
	c.kubectl("", "wait", "--for=jsonpath={.status.disruption.allowed}=0", "--timeout=1m", "nodepool/"+pool)
	out := map[string]string{}
	for _, line := range c.kubectl("", "get", "nodeclaims", "-o",
		`jsonpath={range .items[*]}{.status.nodeName}/{.metadata.name}/{.metadata.deletionTimestamp}{"\n"}{end}`) {
		node, claim, _ := strings.Cut(line, "/")
		claim, deleted, _ := strings.Cut(claim, "/")
		found := c.kubectl("", "get", "node", node, "--ignore-not-found", "-o", "jsonpath={.metadata.name} {.spec.taints}")
		if deleted == "" && len(found) == 1 { // it is there, and has no taint
			out[node] = claim
		}
	}
	return out
}

// dovetail is a command of the program, run as the lister unless it reads files.
func (c liveCluster) dovetail(args ...string) *exec.Cmd {
	binary := cmp.Or(os.Getenv("DOVETAIL"), filepath.Join(filepath.Dir(labtest.Binary(c.t)), "dovetail"))
	if !slices.Contains(args, "-f") {
		args = append(args, "--as", "lister")
	}
	cmd := exec.CommandContext(c.t.Context(), binary, args...)
	cmd.Env = c.env
	return cmd
}

// explains runs explain. Its document has to have each of the words.
func (c liveCluster) explains(kind, name string, words ...string) {
	c.t.Helper()
	cmd := c.dovetail("explain", kind, name, "-o", "json")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		c.t.Errorf("%s: %v\n%s", cmd, err, failed.Stderr)
	}
	if !json.Valid(out) {
		c.t.Errorf("%s prints no JSON: %v\n%s", cmd, err, out)
	}
	for _, word := range words {
		if !strings.Contains(string(out), word) {
			c.t.Errorf("%s: no %q in:\n%s", cmd, word, out)
		}
	}
}

// liveAgent talks to dovetail mcp in JSON-RPC, a line for each message.
type liveAgent struct {
	t     *testing.T
	cmd   *exec.Cmd
	ask   func(line string)
	close func() error
	lines *bufio.Scanner
	calls int
}

// agent starts the server, and introduces itself.
func (c liveCluster) agent() *liveAgent {
	c.t.Helper()
	a := &liveAgent{t: c.t, cmd: c.dovetail("mcp")}
	in, err := a.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	a.ask = func(line string) {
		if _, err := fmt.Fprintln(in, line); err != nil {
			c.t.Fatal(err)
		}
	}
	a.close, a.lines = in.Close, bufio.NewScanner(out)
	a.lines.Buffer(nil, 1<<20)
	a.ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
		`"clientInfo":{"name":"lab","version":"1"}}}`)
	if a.lines.Scan(); !strings.Contains(a.lines.Text(), `"name":"dovetail"`) {
		c.t.Fatalf("the server introduces itself as %s (%v)", a.lines.Text(), a.lines.Err())
	}
	a.ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// answers calls a tool. Its text has to have words.
func (a *liveAgent) answers(tool, arguments, words string) {
	a.t.Helper()
	a.calls++
	a.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, a.calls, tool, arguments))
	var answer struct {
		ID     int `json:"id"`
		Result struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	a.lines.Scan()
	if err := json.Unmarshal(a.lines.Bytes(), &answer); err != nil || answer.ID != a.calls || len(answer.Result.Content) != 1 {
		a.t.Fatalf("%s %s: %v (%v), %s", tool, arguments, err, a.lines.Err(), a.lines.Bytes())
	}
	if text := answer.Result.Content[0].Text; !strings.Contains(text, words) {
		a.t.Errorf("%s %s: no %q in:\n%s", tool, arguments, words, text)
	}
}

// closes closes the server's input, with which it exits.
func (a *liveAgent) closes() {
	a.t.Helper()
	if err := errors.Join(a.close(), a.cmd.Wait()); err != nil {
		a.t.Errorf("the server exits with %v", err)
	}
}
