package awstest

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/interruption"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

const queueName = "interruptions"

// interruptionFixture is an account with the instances of NodeClaims, and the interruption controllers.
type interruptionFixture struct {
	*world
	*controllertest.Fixture
	cloud   *cloud
	queue   *interruption.Queue
	status  *interruption.Status
	metrics *interruption.Metrics
	log     *strings.Builder
}

// newInterruptionFixture launches a spot instance for each name, as its claim, with a Node.
func newInterruptionFixture(t *testing.T, names ...string) *interruptionFixture {
	t.Helper()
	w := &interruptionFixture{world: newWorld(t), log: &strings.Builder{}}
	if err := w.Sim.SendEventsTo(queueName); err != nil {
		t.Fatal(err)
	}
	w.cloud = w.start(w.config("uid-1"))
	w.Fixture = controllertest.New(t, controllertest.Pool("general"))
	w.Fixture.Clock = w.world.Clock.Now()
	class := nodeClass("default")
	resolve(t, w.cloud, class)
	for _, name := range names {
		w.launch(name, class)
	}
	w.advancePastDelays()
	w.drainQueue()
	w.restart()
	return w
}

func (w *interruptionFixture) launch(name string, class *awsv1.EC2NodeClass) {
	w.world.t.Helper()
	c := claim(name, in(karpv1.LabelCapacityType, "spot"))
	c.Finalizers = []string{karpv1.FinalizerTermination}
	launched, err := w.cloud.Launch(w.Context(), c, class)
	if err != nil {
		w.world.t.Fatal(err)
	}
	for key, value := range launched.Labels {
		c.Labels[key] = value
	}
	c.Status.ProviderID, c.Status.NodeName = launched.ProviderID, "node-"+name
	w.Do(w.API.Create(w.Context(), c.DeepCopy()))
	stored := w.Claim(name)
	stored.Status = c.Status
	w.Do(w.API.Status().Update(w.Context(), stored))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}}
	node.Spec.ProviderID = launched.ProviderID
	w.Do(w.API.Create(w.Context(), node))
}

// restart makes the controllers anew, their memory empty.
func (w *interruptionFixture) restart() {
	w.world.t.Helper()
	var err error
	if w.metrics, err = interruption.NewMetrics(prometheus.NewRegistry()); err != nil {
		w.world.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	actor := &interruption.Actor{
		Client: w.API, Guard: destroytest.Guard(w.API, w.world.Clock.Now), Live: w.API, Cloud: w.cloud, Events: w.Events, Metrics: w.Fixture.Metrics, Log: log, Now: w.world.Clock.Now,
	}
	w.queue = &interruption.Queue{
		Source: w.cloud.InterruptionQueue(queueName), Actor: actor, Metrics: w.metrics, Log: log, Now: w.world.Clock.Now,
		Condition: &interruption.QueueCondition{Client: w.API, Events: w.Events, Log: log, Now: w.world.Clock.Now},
	}
	w.status = &interruption.Status{Instances: w.cloud, Actor: actor, Condition: w.queue.Condition, Metrics: w.metrics, Log: log}
}

// instance is the ID of a claim's instance.
func (w *interruptionFixture) instance(name string) string {
	id := w.Claim(name).Status.ProviderID
	return id[strings.LastIndexByte(id, '/')+1:]
}

// send puts a message into the queue.
func (w *interruptionFixture) send(body string) {
	w.world.t.Helper()
	if err := w.Sim.SQS().Send(queueName, body); err != nil {
		w.world.t.Fatal(err)
	}
}

// readQueue has the controller read the queue once, in which there are messages.
func (w *interruptionFixture) readQueue() {
	w.world.t.Helper()
	w.Fixture.Clock = w.world.Clock.Now()
	if _, err := w.queue.Round(w.Context(), 0); err != nil {
		w.world.t.Fatal(err)
	}
}

// checkStatus has the controller query after the status of instances.
func (w *interruptionFixture) checkStatus() {
	w.world.t.Helper()
	w.Fixture.Clock = w.world.Clock.Now()
	if err := w.status.Pass(w.Context()); err != nil {
		w.world.t.Fatal(err)
	}
}

// queued is how many messages are in the queue, whether they are hidden or not.
func (w *interruptionFixture) queued() string {
	w.world.t.Helper()
	out, err := sqs.NewFromConfig(w.Config).GetQueueAttributes(w.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: new(w.URL + "/111122223333/" + queueName), AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
	})
	if err != nil {
		w.world.t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

// drainQueue deletes all messages so far.
func (w *interruptionFixture) drainQueue() {
	w.world.t.Helper()
	q := w.cloud.InterruptionQueue(queueName)
	for {
		messages, err := q.Receive(w.Context(), 0)
		if err != nil {
			w.world.t.Fatal(err)
		}
		if len(messages) == 0 {
			return
		}
		if _, err := q.Delete(w.Context(), messages); err != nil {
			w.world.t.Fatal(err)
		}
	}
}

// eventBridge is what EventBridge sends of EC2.
func eventBridge(detailType, detail string) string {
	return fmt.Sprintf(
		`{"version":"0","id":"1","source":"aws.ec2","account":"111122223333","time":"2026-08-21T10:00:00Z","region":"us-east-1","resources":[],"detail-type":%q,"detail":%s}`,
		detailType,
		detail,
	)
}

const spotWarning = "EC2 Spot Instance Interruption Warning"

// deletedClaims are the claims that are in flight out, by name.
func (w *interruptionFixture) deletedClaims() []string {
	w.world.t.Helper()
	var list karpv1.NodeClaimList
	w.Do(w.API.List(w.Context(), &list))
	out := []string{}
	for _, c := range list.Items {
		if c.DeletionTimestamp != nil {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (w *interruptionFixture) received(kind string) int {
	return counted(w.world.t, w.metrics.Received.WithLabelValues(kind))
}

// counted is a counter's or a gauge's.
func counted(t testing.TB, m prometheus.Metric) int {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return int(out.GetCounter().GetValue() + out.GetGauge().GetValue())
}

// expect fails unless these claims end, and no others, and the queue is empty.
func (w *interruptionFixture) expect(ended ...string) {
	w.world.t.Helper()
	if got := w.deletedClaims(); !slices.Equal(got, append([]string{}, ended...)) {
		w.world.t.Errorf("claims %v end, want %v", got, ended)
	}
	if got := w.queued(); got != "0+0" {
		w.world.t.Errorf("%s messages are left", got)
	}
}

// reasons are those of events, each with how often it was given.
func reasons(said []string) map[string]int {
	out := map[string]int{}
	for _, s := range said {
		kind, rest, _ := strings.Cut(s, " ")
		reason, _, _ := strings.Cut(rest, " ")
		out[kind+" "+reason]++
	}
	return out
}

// poolCondition returns the NodePool's condition about the queue.
func (w *interruptionFixture) poolCondition() (metav1.Condition, bool) {
	pool := controllertest.Pool("general")
	w.Get(pool)
	return condition.Get(pool, karpv1.ConditionInterruptionQueueUnavailable)
}

// until waits for what other goroutines do.
func (w *interruptionFixture) until(what string, done func() bool) {
	w.world.t.Helper()
	deadline := time.After(2 * time.Minute) // far more than a busy host needs
	for !done() {
		select {
		case <-deadline:
			w.world.t.Fatalf("%s: not within 2 min; log: %s", what, w.log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
