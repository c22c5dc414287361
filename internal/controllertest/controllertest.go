// Package controllertest is the fixture of reconciler tests: an API server with a few objects, a manual clock, and a
// recorder of events.
package controllertest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// Start is the initial time of the clock, and the time at which objects were created and conditions set.
var Start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// Fixture is a test cluster.
type Fixture struct {
	API     client.WithWatch
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	// Clock is the time that Now returns.
	Clock time.Time

	t    *testing.T
	said *record.FakeRecorder
	// ids counts what NewID has returned.
	ids atomic.Int64
}

// New returns a cluster with objects.
func New(t *testing.T, objects ...client.Object) *Fixture {
	t.Helper()
	f := &Fixture{t: t, Clock: Start, Log: slog.New(slog.DiscardHandler), said: record.NewFakeRecorder(100)}
	f.API = apitest.New(t, f.Now, objects...)
	f.Events = event.NewRecorder(f.said, f.Now)
	if writes != nil {
		log := writes.logOf(t)
		f.API = log.client(f.API)
		f.Events = event.NewRecorder(loggedEvents{f.said, log}, f.Now)
	}
	var err error
	if f.Metrics, err = metrics.New(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	return f
}

// NewID returns a UUID that the fixture has not returned before. Names are made of them, and lists are sorted by name: random
// ones would change the order of writes.
func (f *Fixture) NewID() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", f.ids.Add(1)) }

// Now reads the clock.
func (f *Fixture) Now() time.Time { return f.Clock }

// RecordedEvents returns the events since it was last called, as "Warning Reason message".
func (f *Fixture) RecordedEvents() []string {
	var out []string
	for {
		select {
		case e := <-f.said.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// Try reconciles an object.
func (f *Fixture) Try(r reconcile.Reconciler, name string) (reconcile.Result, error) {
	return r.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
}

// Reconcile reconciles an object and expects no error.
func (f *Fixture) Reconcile(r reconcile.Reconciler, name string) reconcile.Result {
	f.t.Helper()
	result, err := f.Try(r, name)
	if err != nil {
		f.t.Fatalf("reconcile %s: %v", name, err)
	}
	return result
}

// Get reads an object by its name, and namespace if it has one; false if it is gone.
func (f *Fixture) Get(o client.Object) bool {
	f.t.Helper()
	err := f.API.Get(f.t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		f.t.Fatal(err)
	}
	return err == nil
}

// Claim returns the current claim; nil if it is gone.
func (f *Fixture) Claim(name string) *karpv1.NodeClaim {
	f.t.Helper()
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !f.Get(c) {
		return nil
	}
	return c
}

// Node returns the current Node; nil if it is gone.
func (f *Fixture) Node(name string) *corev1.Node {
	f.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !f.Get(n) {
		return nil
	}
	return n
}

// Do fails the test if a write to the API server has failed.
func (f *Fixture) Do(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// Context is the test's.
func (f *Fixture) Context() context.Context { return f.t.Context() }

// Counted returns how many claims of pool "general" the metrics count as disrupted for a reason.
func (f *Fixture) Counted(reason string) int {
	return int(testutil.ToFloat64(f.Metrics.ClaimsDisrupted.WithLabelValues(reason, "general", "", "", "graceful")))
}

// classRef refers to the node class of Class.
var classRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}

// Class returns a node class that is ready.
func Class(change ...func(*awsv1.EC2NodeClass)) *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: classRef.Name}}
	for _, typ := range c.ConditionTypes().Dependents {
		condition.SetTrue(c, typ, Start)
	}
	apply(c, change)
	return c
}

// Pool returns a pool that is ready.
func Pool(name string, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Template.Spec.NodeClassRef = classRef
	for _, typ := range p.ConditionTypes().Dependents {
		condition.SetTrue(p, typ, Start)
	}
	apply(p, change)
	return p
}

// Claim returns a claim of pool "general" that has its finalizer and no instance yet.
func Claim(name string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(Start),
		Labels:      map[string]string{karpv1.LabelNodePool: "general", awsv1.LabelNodeClass: classRef.Name},
		Annotations: map[string]string{}, Finalizers: []string{karpv1.FinalizerTermination},
	}}
	c.Spec.NodeClassRef = classRef
	apply(c, change)
	return c
}

func apply[T any](o T, change []func(T)) {
	for _, f := range change {
		f(o)
	}
}

// Launched gives a claim its instance.
func Launched(c *karpv1.NodeClaim) {
	c.Status.ProviderID = "aws:///us-east-1a/i-" + c.Name
	condition.SetTrue(c, karpv1.ConditionLaunched, Start)
}

// Registered gives a claim its instance and Node.
func Registered(c *karpv1.NodeClaim) {
	Launched(c)
	c.Status.NodeName = "node-" + c.Name
	condition.SetTrue(c, karpv1.ConditionRegistered, Start)
}

// Initialized gives a claim its instance and a Node that is ready for use.
func Initialized(c *karpv1.NodeClaim) {
	Registered(c)
	condition.SetTrue(c, karpv1.ConditionInitialized, Start)
}

// Deleting marks a claim as being deleted.
func Deleting(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: Start} }

// JoinedNode returns the Node of a claim as its kubelet creates it.
func JoinedNode(claim string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + claim, Labels: map[string]string{}}}
	n.Spec.ProviderID = "aws:///us-east-1a/i-" + claim
	n.Spec.Taints = []corev1.Taint{karpv1.TaintUnregistered()}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	apply(n, change)
	return n
}

// ReadyNode returns the Node of a claim, ready for use.
func ReadyNode(claim string, change ...func(*corev1.Node)) *corev1.Node {
	return JoinedNode(claim, append([]func(*corev1.Node){func(n *corev1.Node) {
		n.Finalizers = []string{karpv1.FinalizerTermination}
		n.Labels = map[string]string{
			karpv1.LabelNodePool: "general", awsv1.LabelNodeClass: classRef.Name, karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
		}
		n.Spec.Taints = nil
	}}, change...)...)
}

// NotReady makes a Node's Ready condition unknown, as when its kubelet stops reporting.
func NotReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

// DeletingNode marks a Node as being deleted.
func DeletingNode(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: Start} }

// Pod returns a pod bound to a node; to none if node is empty.
func Pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(Start)},
	}
	p.Spec.NodeName = node
	apply(p, change)
	return p
}

// OwnedByDaemonSet makes a DaemonSet own a pod.
func OwnedByDaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent"}}
}

// Taints lists a Node's taints, as key:effect.
func Taints(n *corev1.Node) []string {
	var out []string
	for _, t := range n.Spec.Taints {
		out = append(out, fmt.Sprintf("%s:%s", t.Key, t.Effect))
	}
	slices.Sort(out)
	return out
}
