package screen

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

func TestStateOfANode(t *testing.T) {
	const id = "i-0123456789abcdef0"
	provider := "aws:///us-east-1a/" + id
	now := metav1.Now()
	node := func(ready corev1.ConditionStatus) []corev1.Node {
		return []corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "ip-10-0-0-4.ec2.internal"}, Spec: corev1.NodeSpec{ProviderID: provider},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}}
	}
	ending := []karpv1.NodeClaim{
		{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Status: karpv1.NodeClaimStatus{ProviderID: provider}},
	}
	for _, tt := range []struct {
		want     string
		instance string
		nodes    []corev1.Node
		claims   []karpv1.NodeClaim
	}{
		{"booting", "pending", nil, nil},
		{"booting", "running", nil, nil},
		{"joining", "running", node(corev1.ConditionFalse), nil},
		{"ready", "running", node(corev1.ConditionTrue), nil},
		{"draining", "running", node(corev1.ConditionTrue), ending},
		{"terminating", "shutting-down", node(corev1.ConditionTrue), ending},
	} {
		t.Run(tt.want+" "+tt.instance, func(t *testing.T) {
			got := index(tt.nodes, tt.claims).node(awsim.Instance{ID: id, State: tt.instance})
			name := id
			if tt.nodes != nil {
				name = tt.nodes[0].Name
			}
			if got.State != tt.want || got.Name != name || got.CapacityType != "on-demand" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	s := Status{
		Cluster: "lab", Pending: 2, Running: 3, PerHour: 0.1296,
		Nodes: []Node{
			{
				Name:         "ip-10-0-0-4.ec2.internal",
				Type:         "c7a.large",
				Zone:         "us-east-1a",
				CapacityType: "spot",
				State:        "ready",
				PerHour:      0.0321,
				Pods:         3,
			},
			{Name: "i-0123456789abcdef0", Type: "m7g.xlarge", Zone: "us-east-1b", CapacityType: "on-demand", State: "booting", PerHour: 0.0975},
		},
		Events: []Event{
			{Time: time.Date(2026, 8, 1, 12, 30, 1, 0, time.Local), Object: "pod/a", Reason: "Nominated", Text: "Pod should schedule on: b"},
		},
	}
	want := []string{
		"lab   pods: 2 pending, 3 running   nodes: 2   $0.130/h",
		"  NODE                         TYPE             ZONE        CAPACITY        $/H  PODS  STATE",
		"  ip-10-0-0-4.ec2.internal     c7a.large        us-east-1a  spot         0.0321     3  ready",
		"  i-0123456789abcdef0          m7g.xlarge       us-east-1b  on-demand    0.0975     0  booting",
		"  12:30:01 pod/a Nominated: Pod should schedule on: b",
	}
	if diff := cmp.Diff(want, s.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if got, want := s.Line(), "lab  pods: 2 pending, 3 running  nodes: 1 booting, 1 ready  $0.130/h"; got != want {
		t.Errorf("line: got %q, want %q", got, want)
	}
}

func TestLongListsAreCut(t *testing.T) {
	s := Status{Nodes: make([]Node, 100)}
	if lines := s.Lines(); len(lines) > 30 || !strings.Contains(lines[len(lines)-1], "80 more") {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func TestLatestEvents(t *testing.T) {
	var all []corev1.Event
	for i := range 9 {
		e := corev1.Event{Reason: fmt.Sprint(i), LastTimestamp: metav1.NewTime(time.Unix(int64(100-i), 0))}
		e.Source.Component = "karpenter"
		all = append(all, e)
	}
	all = append(
		all,
		corev1.Event{
			Reason:        "Scheduled",
			Source:        corev1.EventSource{Component: "default-scheduler"},
			LastTimestamp: metav1.NewTime(time.Unix(1000, 0)),
		},
	)
	var got []string
	for _, e := range latest(all) {
		got = append(got, e.Reason)
	}
	if diff := cmp.Diff([]string{"5", "4", "3", "2", "1", "0"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// terminal is a painter that redraws in place, on a terminal of that size.
func terminal(out *bytes.Buffer, width, height int) *Painter {
	return &Painter{out: out, size: func() (int, int) { return width, height }}
}

func TestPaintReplacesWhatItPainted(t *testing.T) {
	var out bytes.Buffer
	p := terminal(&out, 10, 4)
	p.Paint([]string{"one", "a long line, cut"})
	p.Paint([]string{"one", "a long line, cut"}) // nothing new, nothing drawn
	p.Paint([]string{"1", "2", "3", "does not fit"})
	p.Print("stays")
	p.Paint([]string{"next"})
	p.Keep()
	p.Print("end")
	want := "one\na long li…\n" +
		"\x1b[2A\x1b[J1\n2\n3\n" +
		"\x1b[3A\x1b[Jstays\n" +
		"next\nend\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBoot(t *testing.T) {
	for _, tt := range []struct {
		name    string
		painter func(*bytes.Buffer) *Painter
		want    string
	}{
		{"not a terminal", func(b *bytes.Buffer) *Painter { return NewPainter(b, func(string) string { return "" }) }, "" +
			"  ✓ lab: etcd                          1.0 s\n"},
		{"terminal", func(b *bytes.Buffer) *Painter { return terminal(b, 80, 24) }, "" +
			"  … lab: etcd                          0.0 s\n" +
			"\x1b[1A\x1b[J  ✓ lab: etcd                          1.0 s\n" +
			"\x1b[1A\x1b[J  ✓ lab: etcd                          1.0 s\n  … lab: controller                    0.0 s\n" +
			"\x1b[2A\x1b[J  ✓ lab: etcd                          1.0 s\n  … lab: controller                    2.0 s\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			now := time.Unix(0, 0)
			boot := NewBoot(tt.painter(&out), func() time.Time { return now })
			boot.Progress(world.Progress{Cluster: "lab", Part: "etcd"})
			now = now.Add(time.Second)
			boot.Progress(world.Progress{Cluster: "lab", Part: "etcd", Healthy: true})
			boot.Progress(world.Progress{Cluster: "lab", Part: "controller"})
			now = now.Add(2 * time.Second)
			boot.Tick()
			if took := boot.Finish(); took != 3*time.Second {
				t.Errorf("it took %v", took)
			}
			boot.Tick()
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhySoManyNodes(t *testing.T) {
	ready := []Node{{Name: "a", State: "ready"}, {Name: "b", State: "ready"}, {Name: "c", State: "ready"}}
	s := Status{Cluster: "lab", Running: 5, PerHour: 0.104, Nodes: ready}
	for _, tt := range []struct {
		name string
		node *world.SingleNode
		want string
	}{
		{
			"one node is dearer", &world.SingleNode{Type: "c7i.2xlarge", CapacityType: "spot", Zone: "us-east-1b", PerHour: 0.131},
			"Why 3 nodes for 5 pods? Together they cost $0.104/h; the cheapest single node for all of them costs $0.131/h (c7i.2xlarge, spot, us-east-1b).",
		},
		{
			"one node is cheaper", &world.SingleNode{Type: "c7i.2xlarge", CapacityType: "spot", Zone: "us-east-1b", PerHour: 0.1},
			"Why 3 nodes for 5 pods? Together they cost $0.104/h; one node for all of them would cost $0.100/h, " +
				"but consolidation would have to move the pods (c7i.2xlarge, spot, us-east-1b).",
		},
		{"no type is large enough", nil, "Why 3 nodes for 5 pods? Together they cost $0.104/h; no instance type of the NodePool fits all pods."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := comparisonText(&s, tt.node); got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
	if settledKey(&s) == "" {
		t.Error("nodes that are all ready, without pending pods, have settled")
	}
	for name, moving := range map[string]Status{
		"pending pods": {Pending: 1, Running: 4, Nodes: ready}, "a node that boots": {Running: 5, Nodes: append([]Node{{State: "booting"}},
			ready...)},
		"one node": {Running: 5, Nodes: ready[:1]}, "no pods": {Nodes: ready},
	} {
		if settledKey(&moving) != "" {
			t.Errorf("%s: nothing is to be compared yet", name)
		}
	}
}

func TestStatusReportsControllerExits(t *testing.T) {
	s := Status{
		Cluster:       "lab",
		ControllerLog: "/tmp/controller.log",
		Exits:         world.ControllerExits{Times: 2, Last: "exit status 2", At: time.Date(2026, 8, 1, 12, 30, 1, 0, time.Local)},
	}
	const want = "The controller exited 2 time(s), last at 12:30:01 (exit status 2), and restarts. Its log: /tmp/controller.log"
	if got := s.Note(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if lines := s.Lines(); lines[len(lines)-1] != "  "+want {
		t.Errorf("the last line is %q", lines[len(lines)-1])
	}
}
