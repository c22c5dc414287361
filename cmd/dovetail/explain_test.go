package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// loneNode is a node of the NodePool of the examples as Karpenter leaves it, and the pod on it.
const loneNode = `
apiVersion: v1
kind: Node
metadata:
  name: ip-10-0-1-7
  labels: &labels
    karpenter.sh/nodepool: general
    karpenter.sh/registered: "true"
    karpenter.sh/initialized: "true"
    karpenter.sh/capacity-type: on-demand
    node.kubernetes.io/instance-type: m7i.2xlarge
    topology.kubernetes.io/zone: us-east-1a
    kubernetes.io/arch: amd64
    kubernetes.io/os: linux
spec: {providerID: "aws:///us-east-1a/i-1"}
status:
  capacity: &room {cpu: "8", memory: 32Gi, pods: "58"}
  allocatable: *room
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: general-x, labels: {karpenter.sh/nodepool: general}, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
status:
  providerID: aws:///us-east-1a/i-1
  nodeName: ip-10-0-1-7
  conditions:
    - {type: Launched, status: "True", reason: Launched, lastTransitionTime: "2026-01-01T00:00:00Z"}
    - {type: Registered, status: "True", reason: Registered, lastTransitionTime: "2026-01-01T00:00:00Z"}
    - {type: Initialized, status: "True", reason: Initialized, lastTransitionTime: "2026-01-01T00:00:00Z"}
    - {type: Consolidatable, status: "True", reason: Consolidatable, lastTransitionTime: "2026-01-01T00:00:00Z"}
---
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: batch
  annotations: {karpenter.sh/do-not-disrupt: "true"}
spec: {nodeName: ip-10-0-1-7, containers: [{name: main, image: main, resources: {requests: {cpu: 100m}}}]}
status: {phase: Running}
`

func TestExplainNamesTheCause(t *testing.T) {
	for args, want := range map[string]string{
		"node ip-10-0-1-7":     "node ip-10-0-1-7 stays: pod shop/batch has the annotation karpenter.sh/do-not-disrupt=true",
		"nodes/ip-10-0-1-7":    "node ip-10-0-1-7 stays: pod shop/batch has",
		"nodeclaim general-x":  "nodeclaim general-x stays: pod shop/batch has",
		"nodepool general":     "nodepool general has 1 node for $",
		"pod shop/batch":       "shop/batch",
		"nodepools/general":    "How many nodes may be disrupted at once",
		"no ip-10-0-1-7":       "m7i.2xlarge, us-east-1a, on-demand",
		"nodeclaims/general-x": "NodePool general, NodeClaim general-x, Node ip-10-0-1-7",
	} {
		line := append([]string{"explain", "-f", examplePool, "-f", "-", "--region", "us-east-1"}, strings.Fields(args)...)
		wide, _, err := command(loneNode, append(line, "-o", "wide")...)
		if err != nil || !strings.Contains(wide, want) {
			t.Errorf("explain %s: %v, no %q in:\n%s", args, err, want, wide)
		}
		document, _, err := command(loneNode, append(line, "-o", "json")...)
		if err != nil || !json.Valid([]byte(document)) || strings.Contains(document, "null") {
			t.Errorf("explain %s -o json: %v:\n%s", args, err, document)
		}
	}
}

func TestExplainOfWhatIsNotThere(t *testing.T) {
	for args, want := range map[string]string{
		"node nothing":      `the cluster has no Node "nothing"`,
		"nodeclaim nothing": `the cluster has no NodeClaim "nothing"`,
		"nodepool nothing":  `the cluster has no NodePool "nothing"`,
		"service web":       `"service" is not a kind that explain knows: use pod, node, nodeclaim, nodepool`,
		"node":              "name the node: explain node NAME",
	} {
		_, _, err := command("", append([]string{"explain", "-f", examplePool}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("explain %s: %v, want %s", args, err, want)
		}
	}
}

func TestExplainOfHostileObjects(t *testing.T) {
	const evil = "\x1b[2J\x1b]0;owned\x07\u202eevil\u009b31m\nsecond"
	quoted := strconv.QuoteToASCII(evil)
	objects := strings.NewReplacer(
		"{name: general-x,", "{name: general-x, annotations: {"+karpv1.AnnotationLaunchReason+": "+quoted+"},",
		"    - {type: Consolidatable", "    - {type: Drifted, status: \"True\", reason: "+quoted+", message: "+quoted+
			", lastTransitionTime: \"2026-01-01T00:00:00Z\"}\n    - {type: Consolidatable",
	).Replace(loneNode)
	for _, args := range []string{"node ip-10-0-1-7", "nodeclaim general-x", "nodepool general", "pod shop/batch"} {
		line := append([]string{"explain", "-f", examplePool, "-f", "-", "--region", "us-east-1"}, strings.Fields(args)...)
		for _, output := range []string{"table", "wide", "json", "yaml"} {
			text, _, err := command(objects, append(line, "-o", output)...)
			if err != nil || strings.ContainsAny(text, "\x1b\x07") || !strings.Contains(args, "pod ") && !strings.Contains(text, "owned") {
				t.Errorf("explain %s -o %s: %v:\n%q", args, output, err, text)
			}
			if (output == "table" || output == "wide") && strings.ContainsAny(text, "\u202e\u009b") {
				t.Errorf("explain %s -o %s has runes that reorder text or control terminals:\n%q", args, output, text)
			}
		}
	}
}

func TestExplainOfHalfAClusterSaysWhatIsMissing(t *testing.T) {
	documents := strings.Split(loneNode, "---\n")
	withoutNode, withoutClaim := documents[1], documents[0]
	for name, c := range map[string]struct{ objects, args, want string }{
		"claim without node":    {withoutNode, "nodeclaim general-x", "had a Node, which was deleted"},
		"node without claim":    {withoutClaim, "node ip-10-0-1-7", "ip-10-0-1-7"},
		"deleted pool":          {strings.ReplaceAll(loneNode, "nodepool: general", "nodepool: gone"), "node ip-10-0-1-7", "its NodePool gone does not exist"},
		"node of a node group":  {strings.ReplaceAll(withoutClaim, "karpenter.sh/nodepool: general", "team: a"), "node ip-10-0-1-7", "is not managed by a NodePool"},
		"pool without nodes":    {documents[2], "nodepool general", "nodepool general has 0 nodes"},
		"no pool and no claims": {withoutClaim, "no ip-10-0-1-7", "Node ip-10-0-1-7"},
	} {
		files := []string{"-f", examplePool, "-f", "-"}
		if name == "no pool and no claims" {
			files = files[2:]
		}
		text, _, err := command(c.objects, append(append([]string{"explain"}, files...), strings.Fields(c.args)...)...)
		if err != nil || !strings.Contains(strings.Join(strings.Fields(text), " "), c.want) {
			t.Errorf("%s: %v, no %q in:\n%s", name, err, c.want, text)
		}
	}
}

// The name of a workload stands for one of its pods, with the kind of a pod or its own. The first line names the pod.
func TestTheNameOfAWorkloadExplainsAPod(t *testing.T) {
	for _, args := range [][]string{
		{"pod", "web", "-n", "shop"},
		{"pod", "shop/web"},
		{"deployment", "shop/web"},
		{"deploy/web", "-n", "shop"},
		{"Deployment", "web", "-n", "shop"},
	} {
		args = append(append([]string{"explain"}, args...), "-f", "../../examples/plan")
		got := strings.Join(strings.Fields(succeed(t, args...)), " ")
		if !strings.HasPrefix(got, "shop/web is a Deployment with 12 pods: this is shop/web-0; also pending: shop/web-1, ") ||
			!strings.Contains(got, " and 6 more. shop/web-0 is pending: ") {
			t.Errorf("%v: %s", args, got)
		}
		document := parsed[struct {
			Pod   string
			Notes []string
		}](t, args...)
		if document.Pod != "shop/web-0" || len(document.Notes) == 0 || !strings.HasPrefix(document.Notes[0], "shop/web is a Deployment") {
			t.Errorf("%v -o json: %+v", args, document)
		}
	}
}
