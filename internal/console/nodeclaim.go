package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
)

// NodeClaimReport is a NodeClaim with its instance and what became of it.
type NodeClaimReport struct {
	Name string `json:"name"`
	// Node is empty until one has registered.
	Node      string `json:"node"`
	NodePool  string `json:"nodePool"`
	NodeClass string `json:"nodeClass"`
	// Instance is the ID of the instance, empty until one is launched.
	Instance     string `json:"instance"`
	InstanceType string `json:"instanceType"`
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone"`
	// HourlyCost is in $/h; null if it is not known.
	HourlyCost *float64   `json:"hourlyCost"`
	Created    time.Time  `json:"created"`
	Deleted    *time.Time `json:"deleted"`
	// Image is that of the instance; without an ID until one is launched.
	Image Resource `json:"image"`
	// Subnets are those of the node class in the zone of the instance, which is in one of them; SecurityGroups are those of the node class.
	// Both are as the node class finds them now: a NodeClaim does not have them.
	Subnets        []Resource       `json:"subnets"`
	SecurityGroups []Resource       `json:"securityGroups"`
	Conditions     []ClaimCondition `json:"conditions"`
	// Drift is how it differs from what its NodePool would launch; null if it does not.
	Drift *drifted.Drift `json:"drift"`
	// Events are those of the NodeClaim and of its Node, the latest first. NoEvents states why there are none to show, EventsRule is the rule
	// of a ClusterRole that is missing.
	Events     []ObjectEvent `json:"events"`
	NoEvents   string        `json:"noEvents"`
	EventsRule string        `json:"eventsRule"`
	// Manifest is the object as YAML.
	Manifest string `json:"manifest"`
}

// ClaimCondition is a status condition.
type ClaimCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// ObjectEvent is an event of an object.
type ObjectEvent struct {
	At time.Time `json:"at"`
	// Kind is that of the object: NodeClaim or Node.
	Kind    string `json:"objectKind"`
	Warning bool   `json:"warning"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Count is how often it happened.
	Count int32 `json:"count"`
}

// nodeClaim is a NodeClaim of the cluster as it is, or as the last pass before a time saw it. It takes no plan.
func (c *Console) nodeClaim(r *http.Request) (any, error) {
	name := r.PathValue("name")
	if r.URL.Query().Has(atParameter.Name) {
		return c.explained(r, "nodeclaim "+name, func(v *planned) (any, error) { return claimReport(v.View, name) })
	}
	view, err := c.views.current(r.Context())
	if err != nil {
		return nil, err
	}
	out, err := claimReport(view, name)
	if err != nil {
		return nil, err
	}
	if c.Events != nil {
		c.addEvents(r.Context(), out)
	}
	return out, nil
}

// claimReport is what is known of a NodeClaim without its events.
func claimReport(v *inspect.View, name string) (*NodeClaimReport, error) {
	at := slices.IndexFunc(v.NodeClaims, func(c *karpv1.NodeClaim) bool { return c.Name == name })
	if at < 0 {
		return nil, inspect.NotFound("NodeClaim", name, v.NodeClaims)
	}
	claim := v.NodeClaims[at]
	offering := fleet.OfferingOf(claim.Labels)
	out := &NodeClaimReport{
		Name: name, Node: claim.Status.NodeName, NodePool: claim.Labels[karpv1.LabelNodePool], NodeClass: claim.Spec.NodeClassRef.Name,
		Instance: instanceOf(claim.Status.ProviderID), InstanceType: offering.InstanceType, CapacityType: offering.CapacityType,
		Zone: offering.Zone, Created: claim.CreationTimestamp.Time, Image: Resource{ID: claim.Status.ImageID},
		Subnets: []Resource{}, SecurityGroups: []Resource{}, Conditions: []ClaimCondition{}, Drift: drifted.Of(v, claim),
		Events: []ObjectEvent{}, NoEvents: "only a live cluster has events",
	}
	if price, known := v.PriceList().Offering(out.NodePool, offering); known {
		out.HourlyCost = &price
	}
	if claim.DeletionTimestamp != nil {
		out.Deleted = &claim.DeletionTimestamp.Time
	}
	for _, x := range claim.Status.Conditions {
		out.Conditions = append(out.Conditions, ClaimCondition{x.Type, string(x.Status), x.Reason, x.Message, x.LastTransitionTime.Time})
	}
	if class := v.NodeClasses[out.NodeClass]; class != nil {
		out.addNetwork(class)
	}
	text, err := manifestOfClaim(claim)
	out.Manifest = text
	return out, err
}

// addNetwork adds what only the node class states.
func (r *NodeClaimReport) addNetwork(class *awsv1.EC2NodeClass) {
	for _, a := range class.Status.AMIs {
		if a.ID == r.Image.ID {
			r.Image.Note = a.Name
		}
	}
	for _, s := range class.Status.Subnets {
		if s.Zone == r.Zone {
			r.Subnets = append(r.Subnets, Resource{ID: s.ID, Note: s.Zone})
		}
	}
	for _, g := range class.Status.SecurityGroups {
		r.SecurityGroups = append(r.SecurityGroups, Resource{ID: g.ID, Note: g.Name})
	}
}

// instanceOf is the ID of the instance of a provider ID such as aws:///eu-west-1a/i-0123456789abcdef0.
func instanceOf(providerID string) string { return providerID[strings.LastIndex(providerID, "/")+1:] }

// manifestOfClaim is a NodeClaim as YAML, without what kubectl has noted on it.
func manifestOfClaim(claim *karpv1.NodeClaim) (string, error) {
	shown := claim.DeepCopy()
	shown.TypeMeta = metav1.TypeMeta{APIVersion: karpv1.GroupVersion.String(), Kind: "NodeClaim"}
	shown.ManagedFields = nil
	delete(shown.Annotations, corev1.LastAppliedConfigAnnotation)
	text, err := yaml.Marshal(shown)
	return string(text), err
}

// addEvents adds the events of the NodeClaim and of its Node.
func (c *Console) addEvents(ctx context.Context, r *NodeClaimReport) {
	r.NoEvents = ""
	for kind, name := range map[string]string{"NodeClaim": r.Name, "Node": r.Node} {
		if name == "" {
			continue
		}
		found, err := c.Events(ctx, kind, name)
		if err != nil {
			problem := problemOf(err)
			r.NoEvents, r.EventsRule = problem.Message, problem.Rule
			continue
		}
		for i := range found {
			r.Events = append(r.Events, eventOf(&found[i], kind))
		}
	}
	slices.SortFunc(r.Events, func(a, b ObjectEvent) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
}

// eventOf reads an event of either API of events.
func eventOf(e *corev1.Event, kind string) ObjectEvent {
	out := ObjectEvent{
		At: e.LastTimestamp.Time, Kind: kind, Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message,
		Count: max(e.Count, 1),
	}
	if out.At.IsZero() {
		out.At = e.EventTime.Time
	}
	if e.Series != nil {
		out.At, out.Count = e.Series.LastObservedTime.Time, max(e.Series.Count, 1)
	}
	if out.At.IsZero() {
		out.At = e.CreationTimestamp.Time
	}
	return out
}
