// Package screen shows the state of a world on a terminal: its boot, and then nodes, pods and cost.
package screen

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Status is a cluster at one moment.
type Status struct {
	Cluster          string
	Pending, Running int    // pods outside kube-system
	Nodes            []Node // in the order of their launch
	PerHour          float64
	// Exits are those of controllers that nobody stopped; ControllerLog is where the controller logs to.
	Exits         world.ControllerExits
	ControllerLog string
	// Disk reports a full disk; empty if it is not full.
	Disk string
	// Why compares the nodes with a single node for all pods; empty if there is nothing to compare.
	Why    string
	Events []Event // the latest, oldest first
}

// Node is a node of a cluster, from its NodeClaim until its instance is terminated.
type Node struct {
	Name         string // of the Node; before it registers, of the instance or the NodeClaim
	Type         string
	Zone         string
	CapacityType string
	State        string
	PerHour      float64
	Pods         int
}

// Event is a Kubernetes event in short.
type Event struct {
	Time   time.Time
	Object string
	Reason string
	Text   string
}

// maxEvents is how many of the latest events a Status holds: they fit below a table of nodes in 24 lines.
const maxEvents = 6

// Read reads a cluster's status.
func Read(ctx context.Context, w *world.World, c *world.Cluster) (Status, error) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	var claims karpv1.NodeClaimList
	var all corev1.EventList
	for _, list := range []client.ObjectList{&pods, &nodes, &claims, &all} {
		// Nothing of them is changed. A copy of all pods would take most of the time that this takes.
		if err := c.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return Status{}, fmt.Errorf("status of cluster %s: %w", c.Name, err)
		}
	}
	s := Status{Cluster: c.Name, Exits: c.UnexpectedExits(), ControllerLog: c.ControllerLog(), Events: latest(all.Items)}
	if err := w.CheckDisk(); err != nil {
		s.Disk = err.Error()
	}
	perNode := map[string]int{}
	for _, p := range pods.Items {
		if p.Namespace == metav1.NamespaceSystem {
			continue
		}
		switch p.Status.Phase {
		case corev1.PodPending:
			s.Pending++
		case corev1.PodRunning:
			s.Running++
			perNode[p.Spec.NodeName]++
		}
	}
	known := index(nodes.Items, claims.Items)
	for _, i := range c.Instances() {
		if i.State == ec2.Terminated {
			continue
		}
		n := known.node(i)
		n.Pods = perNode[n.Name]
		if world.Live(i) {
			price, err := w.Price(ctx, i)
			if err != nil {
				return s, err
			}
			n.PerHour = price
			s.PerHour += price
		}
		s.Nodes = append(s.Nodes, n)
	}
	s.Nodes = append(s.Nodes, unlaunched(claims.Items)...)
	return s, nil
}

// byInstance finds the Node and the NodeClaim of an instance.
type byInstance struct {
	nodes  map[string]*corev1.Node
	claims map[string]*karpv1.NodeClaim
}

func index(nodes []corev1.Node, claims []karpv1.NodeClaim) byInstance {
	out := byInstance{nodes: map[string]*corev1.Node{}, claims: map[string]*karpv1.NodeClaim{}}
	for i := range nodes {
		out.nodes[world.InstanceID(nodes[i].Spec.ProviderID)] = &nodes[i]
	}
	for i := range claims {
		if claims[i].Status.ProviderID != "" {
			out.claims[world.InstanceID(claims[i].Status.ProviderID)] = &claims[i]
		}
	}
	return out
}

func (b byInstance) node(i awsim.Instance) Node {
	n := Node{Name: i.ID, Type: i.Type, Zone: i.Zone, CapacityType: cmp.Or(i.Lifecycle, karpv1.CapacityTypeOnDemand)}
	node, claim := b.nodes[i.ID], b.claims[i.ID]
	if node != nil {
		n.Name = node.Name
	}
	switch {
	case !world.Live(i):
		n.State = "terminating"
	case claim != nil && claim.DeletionTimestamp != nil, node != nil && node.DeletionTimestamp != nil:
		n.State = "draining"
	case node == nil:
		n.State = "booting"
	case !ready(node):
		n.State = "joining"
	default:
		n.State = "ready"
	}
	return n
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// unlaunched are the NodeClaims that have no instance.
func unlaunched(claims []karpv1.NodeClaim) []Node {
	var out []Node
	for _, c := range claims {
		if c.Status.ProviderID == "" {
			out = append(out, Node{Name: c.Name, State: "claimed"})
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// autoscaler is the component that events of Dovetail, and of Karpenter, come from.
const autoscaler = "karpenter"

// latest returns the last events of the autoscaler. Kubernetes' own events are too many to show.
func latest(all []corev1.Event) []Event {
	var out []Event
	for _, e := range all {
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		// A node that was just launched gets this event, too; it does not help here.
		if e.Reason == "Unconsolidatable" {
			continue
		}
		if e.Source.Component == autoscaler || e.ReportingController == autoscaler {
			out = append(out, Event{
				Time: at, Object: strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, Reason: e.Reason,
				Text: strings.ReplaceAll(e.Message, "\n", " "),
			})
		}
	}
	slices.SortFunc(out, func(a, b Event) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason))
	})
	return out[max(0, len(out)-maxEvents):]
}

// Lines are a status in full.
func (s Status) Lines() []string {
	lines := []string{
		fmt.Sprintf("%s   pods: %d pending, %d running   nodes: %d   $%.3f/h", s.Cluster, s.Pending, s.Running, len(s.Nodes), s.PerHour),
	}
	if len(s.Nodes) > 0 {
		lines = append(lines, row("NODE", "TYPE", "ZONE", "CAPACITY", "$/H", "PODS", "STATE"))
	}
	const shown = 20
	for i, n := range s.Nodes {
		if i == shown {
			lines = append(lines, fmt.Sprintf("  ... and %d more", len(s.Nodes)-shown))
			break
		}
		lines = append(lines, row(n.Name, n.Type, n.Zone, n.CapacityType, fmt.Sprintf("%.4f", n.PerHour), fmt.Sprint(n.Pods), n.State))
	}
	for _, note := range s.notes() {
		lines = append(lines, "  "+note)
	}
	for _, e := range s.Events {
		lines = append(lines, fmt.Sprintf("  %s %s %s: %s", e.Time.Local().Format(time.TimeOnly), e.Object, e.Reason, e.Text))
	}
	return lines
}

func row(columns ...any) string {
	return fmt.Sprintf("  %-28s %-16s %-11s %-10s %8s %5s  %s", columns...)
}

// notes are the lines below the table of nodes: the disk, the number of nodes, and the controller's exits.
func (s Status) notes() []string {
	var notes []string
	if s.Disk != "" {
		notes = append(notes, s.Disk)
	}
	if s.Why != "" {
		notes = append(notes, s.Why)
	}
	if s.Exits.Times > 0 {
		notes = append(notes, fmt.Sprintf("The controller exited %d time(s), last at %s (%s), and restarts. Its log: %s",
			s.Exits.Times, s.Exits.At.Local().Format(time.TimeOnly), s.Exits.Last, s.ControllerLog))
	}
	return notes
}

// Note returns the notes on one line; empty if there are none.
func (s Status) Note() string { return strings.Join(s.notes(), " ") }

// Line is a status on one line.
func (s Status) Line() string {
	states := map[string]int{}
	var order []string
	for _, n := range s.Nodes {
		if states[n.State] == 0 {
			order = append(order, n.State)
		}
		states[n.State]++
	}
	slices.Sort(order)
	var parts []string
	for _, state := range order {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	nodes := "none"
	if len(parts) > 0 {
		nodes = strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s  pods: %d pending, %d running  nodes: %s  $%.3f/h", s.Cluster, s.Pending, s.Running, nodes, s.PerHour)
}
