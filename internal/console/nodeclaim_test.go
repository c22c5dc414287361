package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestANodeClaimIsShownWithItsInstanceAndWhatBecameOfIt(t *testing.T) {
	w := newWorld(t)
	w.view.NodeClasses["default"].Status = awsv1.EC2NodeClassStatus{
		AMIs:           []awsv1.AMI{{ID: "ami-1", Name: "al2023-arm64"}},
		Subnets:        []awsv1.Subnet{{ID: "subnet-1", Zone: "use1-az1"}, {ID: "subnet-2", Zone: "use1-az2"}},
		SecurityGroups: []awsv1.SecurityGroup{{ID: "sg-1", Name: "nodes"}},
	}
	claim := w.view.NodeClaims[slices.IndexFunc(w.view.NodeClaims, func(c *karpv1.NodeClaim) bool { return c.Name == "general-a" })]
	claim.Status.ImageID = "ami-1"
	claim.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "secret", "example.com/note": "kept"}
	at := metav1.NewTime(time.Date(2026, 11, 2, 0, 5, 0, 0, time.UTC))
	w.Events = func(_ context.Context, kind, name string) ([]corev1.Event, error) {
		switch kind + " " + name {
		case "NodeClaim general-a":
			return []corev1.Event{{Type: corev1.EventTypeWarning, Reason: "Blocked", Message: "by a budget", Count: 3, LastTimestamp: at}}, nil
		case "Node ip-10-0-0-1.ec2.internal":
			series := &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(at.Add(time.Minute))}
			return []corev1.Event{{Reason: "Ready", EventTime: metav1.NewMicroTime(at.Time), Series: series}}, nil
		}
		return nil, errors.New("events of " + kind + " " + name)
	}
	c := w.console()
	got := decoded[NodeClaimReport](t, get(c, apiRoot+"/nodeclaims/general-a"))
	if got.Instance != "i-a" || got.Node != "ip-10-0-0-1.ec2.internal" || got.NodePool != "general" || got.NodeClass != "default" ||
		got.InstanceType != "m7g.xlarge" || got.CapacityType != "on-demand" || got.Zone != "use1-az1" {
		t.Errorf("it is %+v", got)
	}
	if got.Image != (Resource{"ami-1", "al2023-arm64"}) || !slices.Equal(got.Subnets, []Resource{{"subnet-1", "use1-az1"}}) ||
		!slices.Equal(got.SecurityGroups, []Resource{{"sg-1", "nodes"}}) {
		t.Errorf("it has %+v, %+v and %+v", got.Image, got.Subnets, got.SecurityGroups)
	}
	fleet := decoded[Fleet](t, get(c, apiRoot+"/fleet"))
	if got.HourlyCost == nil || *got.HourlyCost != *fleet.Nodes[1].HourlyCost || fleet.Nodes[1].Claim != "general-a" {
		t.Errorf("it costs %v; the fleet has %+v", got.HourlyCost, fleet.Nodes[1].Node)
	}
	if got.Drift == nil || got.Drift.Reason != "AMIDrift" || len(got.Conditions) != 5 || got.Conditions[4].Type != "Drifted" {
		t.Errorf("drift %+v, conditions %+v", got.Drift, got.Conditions)
	}
	want := []ObjectEvent{
		{At: at.Add(time.Minute), Kind: "Node", Reason: "Ready", Count: 2},
		{At: at.Time, Kind: "NodeClaim", Warning: true, Reason: "Blocked", Message: "by a budget", Count: 3},
	}
	if !slices.Equal(got.Events, want) || got.NoEvents != "" {
		t.Errorf("events are %+v (%s)", got.Events, got.NoEvents)
	}
	if !strings.Contains(got.Manifest, "kind: NodeClaim") || strings.Contains(got.Manifest, "secret") || !strings.Contains(got.Manifest, "kept") {
		t.Errorf("the manifest is\n%s", got.Manifest)
	}
	if flying := decoded[NodeClaimReport](t, get(c, apiRoot+"/nodeclaims/general-b")); flying.Node != "" || flying.Instance != "i-b" {
		t.Errorf("one in flight: %+v", flying)
	}
	if none := get(c, apiRoot+"/nodeclaims/no-such"); none.Code != http.StatusNotFound {
		t.Errorf("one that is not there: %d %s", none.Code, none.Body)
	}
}

// Without the permission to list events the page shows the rest, and the rule that is missing.
func TestEventsThatMayNotBeReadHideNothingElse(t *testing.T) {
	w := newWorld(t)
	w.Events = func(context.Context, string, string) ([]corev1.Event, error) {
		err := apierrors.NewForbidden(kubeschema.GroupResource{Resource: "events"}, "", errors.New("no"))
		return nil, err
	}
	got := decoded[NodeClaimReport](t, get(w.console(), apiRoot+"/nodeclaims/general-a"))
	if got.Instance != "i-a" || got.NoEvents == "" || !strings.Contains(got.EventsRule, "resources: [events]") {
		t.Errorf("it is %+v", got)
	}
	w.Events = nil
	if got := decoded[NodeClaimReport](t, get(w.console(), apiRoot+"/nodeclaims/general-a")); !strings.Contains(got.NoEvents, "live cluster") {
		t.Errorf("of files: %q", got.NoEvents)
	}
}
