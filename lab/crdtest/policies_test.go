package crdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// policyExample is an object that a policy of the chart dovetail-policies refuses, and one that it accepts: each is merged into the nodes
// of the GitOps examples.
type policyExample struct {
	policy string
	kind   string
	reject string
	accept string
	// says is part of the message.
	says string
}

// policyExamples has every rule of tools/chart/testdata/policies.yaml but that of deletions.
var policyExamples = []policyExample{
	{"limits", "NodePool", "{spec: {limits: null}}", "{spec: {limits: {cpu: null, nodes: 10}}}", "neither cpu nor nodes"},
	{
		"limits", "NodePool", "{spec: {limits: {cpu: null, nvidia.com/gpu: 8}}}", "{spec: {limits: {nvidia.com/gpu: 8}}}",
		"neither cpu nor nodes",
	},
	{"limits", "NodePool", "{spec: {limits: {cpu: 1000001m}}}", "{spec: {limits: {cpu: 1k}}}", "spec.limits.cpu is above 1000"},
	{"limits", "NodePool", "{spec: {limits: {cpu: 1001}}}", "{spec: {limits: {cpu: 1000}}}", "spec.limits.cpu is above 1000"},
	{"limits", "NodePool", `{spec: {limits: {nodes: "101"}}}`, `{spec: {limits: {nodes: "100"}}}`, "spec.limits.nodes is above 100"},
	{"node-age", "NodePool", template("expireAfter: 721h"), template("expireAfter: 719h59m60s"), "expireAfter is above 720h"},
	{
		"node-age", "NodePool", template("expireAfter: Never"), template("expireAfter: null"),
		"expireAfter is above 720h or Never", // the default is 720h
	},
	{
		"node-age", "NodePool", template("terminationGracePeriod: null"), template("terminationGracePeriod: 1h"),
		"terminationGracePeriod is not set",
	},
	{
		"required-labels", "NodePool", "{metadata: {labels: {team: null}}}", `{metadata: {labels: {team: ""}}}`, "metadata.labels has no team",
	},
	{
		"required-labels", "EC2NodeClass", "{metadata: {labels: {team: null}}}", "{metadata: {labels: {team: b}}}",
		"metadata.labels has no team",
	},
	{
		"required-node-labels", "NodePool", "{spec: {template: {metadata: null}}}",
		"{spec: {template: {metadata: {labels: {other: x}}}}}", "has no example.com/team",
	},
	{
		"pinned-images", "EC2NodeClass", "{metadata: {labels: {env: prod}}, spec: {amiSelectorTerms: [{alias: al2023@latest}]}}",
		"{metadata: {labels: {env: prod}}}", "al2023@v20260601",
	},
	{ // the same object, with another label
		"pinned-images", "EC2NodeClass", "{metadata: {labels: {env: prod}}, spec: {amiSelectorTerms: [{alias: bottlerocket@latest}]}}",
		"{metadata: {labels: {env: test}}, spec: {amiSelectorTerms: [{alias: bottlerocket@latest}]}}", "is @latest",
	},
	{
		"instance-metadata", "EC2NodeClass", "{spec: {metadataOptions: {httpTokens: optional}}}",
		"{spec: {metadataOptions: {httpTokens: required}}}", "httpTokens is optional",
	},
	{
		"instance-metadata", "EC2NodeClass", "{spec: {metadataOptions: {httpPutResponseHopLimit: 2}}}",
		"{spec: {metadataOptions: {httpPutResponseHopLimit: 1}}}", "httpPutResponseHopLimit is above 1",
	},
	{"encrypted-volumes", "EC2NodeClass", volume("volumeSize: 50Gi"), volume("volumeSize: 50Gi, encrypted: true"), "ebs.encrypted"},
	{
		"encrypted-volumes", "EC2NodeClass", volume("volumeSize: 50Gi, encrypted: false"),
		volume("snapshotID: snap-0123456789abcdef0, encrypted: true"),
		"ebs.encrypted",
	},
	{
		"encrypted-volumes", "EC2NodeClass", "{spec: {amiFamily: Custom, amiSelectorTerms: [{id: ami-0123456789abcdef0}]}}",
		"{spec: {amiFamily: AL2023, amiSelectorTerms: [{id: ami-0123456789abcdef0}]}}", "the family Custom",
	},
}

func template(field string) string { return "{spec: {template: {spec: {" + field + "}}}}" }

func volume(ebs string) string {
	return "{spec: {blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {" + ebs + "}}]}}"
}

// judged is a node class or NodePool of the examples as the policies accept it, under a name of its own.
func judged(t *testing.T, kind, name, patch string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../../examples/flux/nodes/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, text)
	o := all[slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })]
	patches := []string{"{metadata: {labels: {example.com/policies: enforced, team: a}}}"}
	if kind == "NodePool" {
		patches = append(patches, "{spec: {template: {metadata: {labels: {example.com/team: a}}}}}")
	}
	for _, text := range append(patches, patch) {
		value, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		merge(o.Object, value)
	}
	o.SetName(name)
	return o
}

// of is the client of a kind that policies judge.
func of(t *testing.T, name string) dynamic.ResourceInterface {
	t.Helper()
	if name == "NodePool" {
		return nodePool().client(t)
	}
	return ec2NodeClass().client(t)
}

// eventually repeats a request until its error is as wanted: an API server takes a moment to enforce a policy.
func eventually(t *testing.T, want func(error) bool, request func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = request()
		return want(last), nil
	}); err != nil {
		t.Errorf("the API server says: %v", last)
	}
}

// refusedBy reports that a policy refuses a request, with a message.
func refusedBy(policy, says string) func(error) bool {
	return func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "'dovetail-policies-"+policy+"'") && strings.Contains(err.Error(), says)
	}
}

// enforce applies the policies. They stay: only objects of these tests have the label that they select.
func enforce(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tools", "chart", "testdata", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, text) {
		if err := apply(t, o); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "ValidatingAdmissionPolicy" {
			names = append(names, strings.TrimPrefix(o.GetName(), "dovetail-policies-"))
		}
	}
	return names
}

// Every policy of the chart refuses what violates it, with a message that states what is wrong, and accepts what does not.
func TestPoliciesOfTheChart(t *testing.T) {
	pools := of(t, "NodePool")
	create := func(o *unstructured.Unstructured) error {
		_, err := of(t, o.GetKind()).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
		return err
	}
	before := judged(t, "NodePool", "before", "{spec: {limits: null}}") // violates a policy that comes later
	if _, err := pools.Create(t.Context(), before, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{"confirm-delete": true}
	names := enforce(t)
	for i, e := range policyExamples {
		shown[e.policy] = true
		name := fmt.Sprintf("example-%d", i)
		t.Run(e.policy+" "+e.reject, func(t *testing.T) {
			eventually(t, refusedBy(e.policy, e.says), func() error { return create(judged(t, e.kind, name, e.reject)) })
			if err := create(judged(t, e.kind, name, e.accept)); err != nil {
				t.Errorf("%s: %v", e.accept, err)
			}
			outside := judged(t, e.kind, name, e.reject)
			outside.SetLabels(map[string]string{"env": "prod"})
			if err := create(outside); err != nil {
				t.Errorf("without the label of the selector: %v", err)
			}
		})
	}
	for _, name := range names {
		if !shown[name] {
			t.Errorf("no example of %s", name)
		}
	}

	// What was there may be updated by the controller, not changed into something that violates the policy, too.
	patch := func(body string) error {
		_, err := pools.Patch(t.Context(), "before", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1"}, "finalizers": ["example.com/x"]}}`); err != nil {
		t.Error(err)
	}
	for _, body := range []string{`{"spec": {"weight": 2}}`, `{"metadata": {"labels": {"x": "y"}}}`} {
		if err := patch(body); !refusedBy("limits", "neither cpu nor nodes")(err) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if err := patch(`{"metadata": {"finalizers": null}}`); err != nil {
		t.Error(err)
	}
	if err := pools.Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil { // it has no nodes
		t.Error(err)
	}
}

// A NodePool with nodes goes only when its own name confirms it.
func TestDeletionOfNodePoolIsConfirmed(t *testing.T) {
	enforce(t)
	pools := of(t, "NodePool")
	o, err := pools.Create(t.Context(), judged(t, "NodePool", "kept", "{}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(o.Object, int64(2), "status", "nodes"); err != nil {
		t.Fatal(err)
	}
	if _, err := pools.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	dry := func() error {
		return pools.Delete(t.Context(), "kept", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	refused := refusedBy("confirm-delete", "has 2 nodes, which its deletion terminates. "+
		"To confirm it: kubectl annotate nodepool kept dovetail.sh/confirm-delete=kept")
	eventually(t, refused, dry)
	all := metav1.ListOptions{LabelSelector: "example.com/policies=enforced"}
	if err := pools.DeleteCollection(t.Context(), metav1.DeleteOptions{}, all); !refused(err) {
		t.Errorf("kubectl delete nodepools --all: %v", err)
	}
	confirm := func(name string) {
		body := fmt.Sprintf(`{"metadata": {"annotations": {"dovetail.sh/confirm-delete": %q}}}`, name)
		if _, err := pools.Patch(t.Context(), "kept", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if confirm("default"); !refused(dry()) {
		t.Error("the name of another NodePool confirms it")
	}
	confirm("kept")
	if err := pools.Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := pools.Get(t.Context(), "kept", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
}
