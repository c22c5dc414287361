package awstest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func TestInterruptionMessages(t *testing.T) {
	w := newInterruptionFixture(t, "a")
	for _, tt := range []struct {
		name string
		body string
		kind string // as counted; empty if it is not
		log  string // part of the log
	}{
		{"unparsable body", "}{", "", "cannot be read and is deleted"},
		{"empty body", "", "no_op", ""},
		{"state running", eventBridge("EC2 Instance State-change Notification", `{"instance-id":"INSTANCE","state":"running"}`), "no_op", ""},
		{"spot warning for a foreign instance", eventBridge(spotWarning, `{"instance-id":"i-0foreign"}`), "spot_interrupted", ""},
		{"details of another shape", eventBridge(spotWarning, `["INSTANCE"]`), "", "cannot be read and is deleted"},
		{"no instance named", eventBridge(spotWarning, `{}`), "spot_interrupted", ""},
		{
			"another version", strings.Replace(eventBridge(spotWarning, `{"instance-id":"INSTANCE"}`), `"version":"0"`, `"version":"1"`, 1),
			"no_op", "",
		},
		{"another source", strings.Replace(eventBridge(spotWarning, `{"instance-id":"INSTANCE"}`), "aws.ec2", "aws.ec3", 1), "no_op", ""},
		{"another detail type", eventBridge("EC2 Fleet Instance Change", `{"instance-id":"INSTANCE"}`), "no_op", ""},
		{"a number", "42", "", "cannot be read and is deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.restart()
			w.log.Reset()
			w.send(strings.ReplaceAll(tt.body, "INSTANCE", w.instance("a")))
			w.readQueue()
			w.expect()
			if said := w.RecordedEvents(); len(said) > 0 {
				t.Errorf("events %q", said)
			}
			if tt.kind != "" && w.received(tt.kind) != 1 {
				t.Errorf("not counted as %s", tt.kind)
			}
			if counted(t, w.metrics.Deleted) != 1 {
				t.Error("the deletion is not counted")
			}
			if !strings.Contains(w.log.String(), tt.log) || tt.log == "" && w.log.Len() > 0 {
				t.Errorf("log: %s", w.log)
			}
		})
	}
}

func TestActionsOnInterruptions(t *testing.T) {
	const node, claim = 1, 1 // events on each
	for _, tt := range []struct {
		name string
		// happen is what happens to the instance of claim a; b's is left alone.
		happen func(w *interruptionFixture, id string) error
		kind   string
		event  string
		ends   bool
		reason string
	}{
		{
			"spot interruption", func(w *interruptionFixture, id string) error { return w.Sim.EC2().Reclaim(id) }, "spot_interrupted",
			"Warning SpotInterrupted", true, "SpotInterrupted",
		},
		{
			"rebalance recommendation", func(w *interruptionFixture, id string) error { return w.Sim.EC2().RecommendRebalance(id) },
			"rebalance_recommendation", "Normal SpotRebalanceRecommendation", false, "",
		},
		{"somebody terminates it", func(w *interruptionFixture, id string) error {
			w.send(eventBridge("EC2 Instance State-change Notification", `{"instance-id":"`+id+`","state":"shutting-down"}`))
			return nil
		}, "instance_terminated", "Warning InstanceTerminating", true, "InstanceTerminating"},
		{"somebody stops it", func(w *interruptionFixture, id string) error {
			w.send(eventBridge("EC2 Instance State-change Notification", `{"instance-id":"`+id+`","state":"Stopping"}`))
			return nil
		}, "instance_stopped", "Warning InstanceStopping", true, "InstanceStopping"},
		{"its reservation is taken back", func(w *interruptionFixture, id string) error {
			w.send(eventBridge("EC2 Capacity Reservation Instance Interruption Warning", `{"instance-id":"`+id+`","instance-action":"terminate"}`))
			return nil
		}, "capacity_reservation_interrupted", "Warning CapacityReservationInstanceInterrupted", true, "CapacityReservationInstanceInterrupted"},
		{"maintenance", func(w *interruptionFixture, id string) error {
			return w.Sim.EC2().PlanEvent("instance-retirement", w.world.Clock.Now().Add(time.Hour), id)
		}, "scheduled_change", "Warning InstanceUnhealthy", true, "InstanceUnhealthy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newInterruptionFixture(t, "a", "b")
			if err := tt.happen(w, w.instance("a")); err != nil {
				t.Fatal(err)
			}
			w.readQueue()
			want := map[string]int{tt.event: node + claim}
			if tt.ends {
				w.expect("a")
				want["Warning TerminatingOnInterruption"] = node + claim
			} else {
				w.expect()
			}
			if got := reasons(w.RecordedEvents()); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("events %v, want %v", got, want)
			}
			a := w.Claim("a")
			c, _ := condition.Get(a, karpv1.ConditionDisruptionReason)
			if c.Reason != tt.reason || a.Annotations[karpv1.AnnotationTerminationTimestamp] != "" {
				t.Errorf("ended for %q, with deadline %q", c.Reason, a.Annotations[karpv1.AnnotationTerminationTimestamp])
			}
			if w.received(tt.kind) != 1 {
				t.Errorf("not counted as %s", tt.kind)
			}
			if ended := counted(t, w.Fixture.Metrics.ClaimsDisrupted.WithLabelValues(tt.kind, "general", "spot", "", "graceful")); (ended == 1) != tt.ends {
				t.Errorf("%d claims are counted as disrupted", ended)
			}
		})
	}
}

// After an interruption, no launch requests the same spot offering (type and zone) for a while.
func TestInterruptedSpotOfferingsBecomeUnavailable(t *testing.T) {
	w := newInterruptionFixture(t, "a")
	class := nodeClass("default")
	resolve(t, w.cloud, class)
	labels := w.Claim("a").Labels
	available := func() (same, others int) {
		types, err := w.cloud.InstanceTypes(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range typeNamed(t, types, labels[corev1.LabelInstanceTypeStable]).Offerings {
			switch {
			case !o.Available:
			case o.Zone == labels[corev1.LabelTopologyZone] && o.CapacityType == karpv1.CapacityTypeSpot:
				same++
			default:
				others++
			}
		}
		return same, others
	}
	_, before := available()
	if err := w.Sim.EC2().Reclaim(w.instance("a")); err != nil {
		t.Fatal(err)
	}
	w.readQueue()
	if same, others := available(); same != 0 || others != before {
		t.Errorf("%d offerings of the interrupted kind and %d others can be had, want 0 and %d", same, others, before)
	}
	w.world.Clock.Advance(3*time.Minute + time.Second)
	if same, _ := available(); same == 0 {
		t.Error("the offering rests for ever")
	}
	if i, _ := w.Sim.EC2().Instance(w.instance("a")); i.State == "running" {
		t.Error("the simulated EC2 has not taken the instance back")
	}
}

func TestDeletingClaimsAreLeftAlone(t *testing.T) {
	t.Run("NodeClaim already deleting", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		w.Do(w.API.Delete(w.Context(), w.Claim("a")))
		before := w.Claim("a").DeletionTimestamp
		if err := w.Sim.EC2().Reclaim(w.instance("a")); err != nil {
			t.Fatal(err)
		}
		w.readQueue()
		w.expect("a")
		a := w.Claim("a")
		if !a.DeletionTimestamp.Equal(before) {
			t.Error("it was deleted again")
		}
		if c, _ := condition.Get(a, karpv1.ConditionDisruptionReason); c.Reason != "SpotInterrupted" {
			t.Error("nobody can see that its drain has to hurry")
		}
		if n := counted(t, w.Fixture.Metrics.ClaimsDisrupted.WithLabelValues("spot_interrupted", "general", "spot", "", "graceful")); n != 0 {
			t.Errorf("%d deletions are counted", n)
		}
	})
	t.Run("two messages about one instance", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		for range 8 { // they are handled side by side
			w.send(eventBridge(spotWarning, `{"instance-id":"`+w.instance("a")+`"}`))
		}
		w.readQueue()
		w.expect("a")
		if n := counted(t, w.Fixture.Metrics.ClaimsDisrupted.WithLabelValues("spot_interrupted", "general", "spot", "", "graceful")); n != 1 {
			t.Errorf("%d deletions are counted", n)
		}
	})
	t.Run("health event with 3 entities", func(t *testing.T) {
		w := newInterruptionFixture(t, "a", "b", "c", "d")
		if err := w.Sim.EC2().PlanEvent("instance-stop", w.world.Clock.Now().Add(time.Hour), w.instance("a"), w.instance("b"), w.instance("d")); err != nil {
			t.Fatal(err)
		}
		w.readQueue()
		w.expect("a", "b", "d")
	})
	t.Run("a health event that is closed", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		w.send(
			`{"version":"0","source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"closed","affectedEntities":[{"entityValue":"` + w.instance(
				"a",
			) + `"}]}}`,
		)
		w.readQueue()
		w.expect()
	})
}

// A warning may arrive before the NodeClaim's status has the instance.
func TestWarningsAboutInstancesThatAreBeingLaunched(t *testing.T) {
	w := newInterruptionFixture(t, "a")
	id, provider := w.instance("a"), w.Claim("a").Status.ProviderID
	early := w.Claim("a")
	early.Status.ProviderID = ""
	w.Do(w.API.Status().Update(w.Context(), early))
	if err := w.Sim.EC2().Reclaim(id); err != nil {
		t.Fatal(err)
	}
	w.readQueue()
	if got := w.queued(); got != "0+1" {
		t.Fatalf("%s messages wait, want one that is hidden", got)
	}
	late := w.Claim("a")
	late.Status.ProviderID = provider
	w.Do(w.API.Status().Update(w.Context(), late))
	w.world.Clock.Advance(20 * time.Second)
	w.readQueue()
	w.expect("a")
	// One that stays unknown is another's.
	class := nodeClass("default")
	resolve(t, w.cloud, class)
	w.launch("b", class)
	b := w.Claim("b")
	b.Status.ProviderID = ""
	w.Do(w.API.Status().Update(w.Context(), b))
	w.drainQueue()
	w.send(eventBridge(spotWarning, `{"instance-id":"i-0foreign"}`))
	for range 7 {
		w.readQueue()
		w.world.Clock.Advance(20 * time.Second)
	}
	w.readQueue()
	w.expect("a")
}

func TestQueueThatCannotBeRead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		broken func(w *interruptionFixture) (mend func())
		reason string
	}{
		{"queue missing", func(w *interruptionFixture) func() {
			client := sqs.NewFromConfig(w.Config)
			if _, err := client.DeleteQueue(w.Context(), &sqs.DeleteQueueInput{QueueUrl: new(w.URL + "/111122223333/" + queueName)}); err != nil {
				w.world.t.Fatal(err)
			}
			return func() {
				if err := w.Sim.SendEventsTo(queueName); err != nil {
					w.world.t.Fatal(err)
				}
			}
		}, "QueueDoesNotExist"},
		{"queue denied", func(w *interruptionFixture) func() {
			denied := &protocol.Error{Code: "AccessDeniedException", Message: "User: x is not authorized to perform: sqs:receivemessage", Status: 403}
			w.Sim.Inject(awsim.Fault{Service: "sqs", Action: "ReceiveMessage", Error: denied, Times: 1000})
			return w.Sim.ClearFaults
		}, "AccessDenied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newInterruptionFixture(t, "a")
			mend := tt.broken(w)
			if _, err := w.queue.Round(w.Context(), 0); err == nil || !strings.Contains(err.Error(), tt.reason) {
				t.Fatalf("want %s, got %v", tt.reason, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.queue.Start(ctx) }()
			w.until("the NodePool has the condition", func() bool {
				c, ok := w.poolCondition()
				return ok && c.Reason == tt.reason && c.Status == metav1.ConditionTrue
			})
			if counted(t, w.metrics.Available.WithLabelValues(queueName)) != 0 {
				t.Error("the gauge reports a readable queue")
			}
			mend()
			if err := w.Sim.EC2().Reclaim(w.instance("a")); err != nil {
				t.Fatal(err)
			}
			w.until("the warning is acted upon", func() bool { return len(w.deletedClaims()) == 1 })
			w.until("the pool does not say so any more", func() bool { _, ok := w.poolCondition(); return !ok })
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the controller has ended: %v", err)
			}
			if got := reasons(w.RecordedEvents())["Warning InterruptionQueueUnavailable"]; got != 1 {
				t.Errorf("the NodePool got %d events", got)
			}
		})
	}
}

func TestStatusOfInstances(t *testing.T) {
	type test = awsim.Check
	deadline := func(w *interruptionFixture) string {
		return w.Claim("a").Annotations[karpv1.AnnotationTerminationTimestamp]
	}
	for _, tt := range []struct {
		name  string
		check test
		since time.Duration
		ends  bool
		kind  string
	}{
		{"instance status failed for 119 s", awsim.InstanceCheck, 119 * time.Second, false, ""},
		{"instance status failed for 120 s", awsim.InstanceCheck, 120 * time.Second, true, "InstanceStatus"},
		{"system status failed for 119 s", awsim.SystemCheck, 119 * time.Second, false, ""},
		{"system status failed for 120 s", awsim.SystemCheck, 120 * time.Second, true, "SystemStatus"},
		{"volumes impaired for an hour", awsim.EBSCheck, time.Hour, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newInterruptionFixture(t, "a", "b")
			if err := w.Sim.EC2().Impair(w.instance("a"), tt.check, w.world.Clock.Now().Add(-tt.since)); err != nil {
				t.Fatal(err)
			}
			w.checkStatus()
			if !tt.ends {
				w.expect()
				return
			}
			w.expect("a")
			if want := w.world.Clock.Now().UTC().Format(time.RFC3339); deadline(w) != want {
				t.Errorf("deadline %q, want %q", deadline(w), want)
			}
			if counted(t, w.metrics.Unhealthy.WithLabelValues(tt.kind)) != 1 {
				t.Errorf("not counted as %s", tt.kind)
			}
			if got := reasons(w.RecordedEvents()); got["Warning InstanceUnhealthy"] != 2 || got["Warning TerminatingOnInterruption"] != 2 {
				t.Errorf("events %v", got)
			}
		})
	}
	planned := func(w *interruptionFixture) {
		w.world.t.Helper()
		if err := w.Sim.EC2().PlanEvent("system-reboot", w.world.Clock.Now().Add(72*time.Hour), w.instance("a")); err != nil {
			w.world.t.Fatal(err)
		}
		w.drainQueue()
	}
	t.Run("scheduled event in the future", func(t *testing.T) {
		w := newInterruptionFixture(t, "a", "b")
		planned(w)
		w.checkStatus()
		w.expect("a")
		if deadline(w) != "" {
			t.Errorf("deadline %q", deadline(w))
		}
		if counted(t, w.Fixture.Metrics.ClaimsDisrupted.WithLabelValues("event_status", "general", "spot", "", "graceful")) != 1 {
			t.Error("not counted as event_status")
		}
	})
	t.Run("an event that is over", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		planned(w)
		if err := w.Sim.EC2().EndEvents(w.instance("a")); err != nil {
			t.Fatal(err)
		}
		w.checkStatus()
		w.expect()
	})
	t.Run("both system failure and event", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		planned(w)
		if err := w.Sim.EC2().Impair(w.instance("a"), awsim.SystemCheck, w.world.Clock.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		w.checkStatus()
		w.expect("a")
		if deadline(w) == "" {
			t.Error("the node is waited for")
		}
		for _, category := range []string{"SystemStatus", "EventStatus"} {
			if counted(t, w.metrics.Unhealthy.WithLabelValues(category)) != 1 {
				t.Errorf("not counted as %s", category)
			}
		}
	})
	t.Run("same impairment next minute", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		id := w.instance("a")
		if err := w.Sim.EC2().Impair(id, awsim.InstanceCheck, w.world.Clock.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		w.checkStatus()
		first := w.Claim("a")
		w.world.Clock.Advance(time.Minute)
		w.checkStatus()
		if again := w.Claim("a"); again.ResourceVersion != first.ResourceVersion {
			t.Errorf("the claim is written again: deadline %q, was %q", deadline(w), first.Annotations[karpv1.AnnotationTerminationTimestamp])
		}
		unhealthy := w.metrics.Unhealthy.WithLabelValues("InstanceStatus")
		if counted(t, unhealthy) != 1 {
			t.Error("counted again")
		}
		for _, since := range []time.Time{{}, w.world.Clock.Now().Add(-time.Hour)} { // it recovers and falls ill anew
			if err := w.Sim.EC2().Impair(id, awsim.InstanceCheck, since); err != nil {
				t.Fatal(err)
			}
			w.checkStatus()
		}
		if counted(t, unhealthy) != 2 {
			t.Error("a second illness is not counted")
		}
	})
	t.Run("a claim that is leaving in its own time has a machine that fails", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		w.Do(w.API.Delete(w.Context(), w.Claim("a")))
		if err := w.Sim.EC2().Impair(w.instance("a"), awsim.SystemCheck, w.world.Clock.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		w.checkStatus()
		if deadline(w) == "" {
			t.Error("its pods are waited for, on a machine that does not work")
		}
	})
	t.Run("not allowed to ask, then allowed", func(t *testing.T) {
		w := newInterruptionFixture(t, "a")
		if err := w.Sim.EC2().Impair(w.instance("a"), awsim.SystemCheck, w.world.Clock.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		w.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "DescribeInstanceStatus",
				Error:   protocol.Errorf("UnauthorizedOperation", "You are not authorized to perform this operation.").WithStatus(403),
			},
		)
		if err := w.status.Pass(w.Context()); err == nil || !strings.Contains(err.Error(), "ec2:DescribeInstanceStatus") {
			t.Fatalf("got %v, want the missing permission", err)
		}
		w.checkStatus()
		w.expect("a")
	})
}
