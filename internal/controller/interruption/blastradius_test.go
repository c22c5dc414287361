package interruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// fakeStatus is a clinic that reports what it holds.
type fakeStatus []cloudprovider.Impairment

func (a fakeStatus) Ailments(context.Context) ([]cloudprovider.Impairment, error) { return a, nil }

// zones are claims a-0, a-1 … b-0 … of zones us-east-1a, us-east-1b …, in the NodePool that pool returns, with their
// Nodes.
func zones(zones string, each int, pool func(i int) string) []client.Object {
	objects := []client.Object{controllertest.Pool("general")}
	for _, zone := range zones {
		for i := range each {
			name := fmt.Sprintf("%c-%d", zone, i)
			objects = append(
				objects,
				controllertest.ReadyNode(name),
				controllertest.Claim(name, controllertest.Initialized, func(c *karpv1.NodeClaim) {
					c.Labels[karpv1.LabelNodePool], c.Labels[corev1.LabelTopologyZone] = pool(i), fmt.Sprintf("us-east-1%c", zone)
				}),
			)
		}
	}
	return objects
}

func general(int) string { return "general" }

// fail are instances a-0, a-1 … of one zone with something wrong.
func fail(n int, failing bool, kinds ...cloudprovider.InterruptionKind) fakeStatus {
	var out fakeStatus
	for i := range n {
		out = append(out, cloudprovider.Impairment{InstanceID: fmt.Sprintf("i-a-%d", i), Kinds: kinds, Failing: failing})
	}
	return out
}

func TestManyFailedStatusChecksInAZoneTerminateNothing(t *testing.T) {
	const system, scheduled = cloudprovider.SystemStatusFailed, cloudprovider.EventScheduled
	for _, tt := range []struct {
		name    string
		objects []client.Object
		ill     fakeStatus
		// gone counts how many claims are deleted; forced is true if nobody waits for their pods.
		gone   int
		forced bool
		// said is part of the event on the NodePool.
		said string
	}{
		{name: "a third of a pool", objects: zones("abc", 10, general), ill: fail(10, true, system), said: "10 of 30 instances in the nodepool"},
		{name: "two of a zone of five", objects: zones("ab", 5, general), ill: fail(2, true, system), said: "2 of 5 instances in the zone"},
		{name: "a whole zone of many", objects: zones("abcdef", 5, general), ill: fail(5, true, system), said: "5 of 5 instances in the zone"},
		{
			name:    "a whole zone, each node of a pool of its own",
			objects: zones("abc", 5, func(i int) string { return fmt.Sprint("pool-", i) }), ill: fail(5, true, system),
		},
		{name: "one instance of a zone", objects: zones("abc", 5, general), ill: fail(1, true, system), gone: 1, forced: true},
		{name: "two of ten", objects: zones("a", 10, general), ill: fail(2, true, system), gone: 2, forced: true},
		{
			name: "two have failed for long, eight begin to", objects: zones("a", 20, general),
			ill: append(fail(2, true, system), fail(10, true)[2:]...), said: "10 of 20 instances in the nodepool",
		},
		{name: "EC2 plans to stop a whole zone", objects: zones("a", 10, general), ill: fail(10, false, scheduled), gone: 10},
		{
			name: "a whole zone fails, and EC2 plans to stop it", objects: zones("a", 10, general), ill: fail(10, true, system, scheduled),
			gone: 10, said: "10 of 10",
		},
		{name: "the only node of the cluster", objects: zones("a", 1, general), ill: fail(1, true, system), gone: 1, forced: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.objects...)
			p := controller(t, f.API, nil, f.Now)
			p.queue.Actor.Events = f.Events
			s := &Status{Instances: tt.ill, Actor: p.queue.Actor, Condition: p.queue.Condition, Metrics: p.queue.Metrics, Log: f.Log}
			if err := s.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			var claims karpv1.NodeClaimList
			f.Do(f.API.List(t.Context(), &claims))
			gone, forced := 0, 0
			for i := range claims.Items {
				if claims.Items[i].DeletionTimestamp != nil {
					gone++
				}
				if claims.Items[i].Annotations[karpv1.AnnotationTerminationTimestamp] != "" {
					forced++
				}
			}
			if gone != tt.gone || forced != map[bool]int{true: tt.gone}[tt.forced] {
				t.Errorf("%d claims are deleted, %d of them without waiting for pods; want %d, forced %v", gone, forced, tt.gone, tt.forced)
			}
			said := f.RecordedEvents()
			blocked := slices.ContainsFunc(said, func(e string) bool {
				return strings.HasPrefix(e, "Warning NodeRepairBlocked") && strings.Contains(e, tt.said)
			})
			if want := tt.said != "" || tt.gone == 0; blocked != want {
				t.Errorf("blocked %v, want %v: events %q", blocked, want, said)
			}
		})
	}
}
