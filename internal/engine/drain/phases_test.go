package drain_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
)

func TestPhases(t *testing.T) {
	web, plugin := pod{name: "web", grace: 30 * time.Second}.build(), plugin.build()
	tests := []struct {
		name    string
		node    drain.Node
		want    drain.Phase
		evict   []string
		deletes []string
		until   *time.Time
	}{
		{
			name: "pods leave, and daemons that they need do not", node: drain.Node{Pods: pods(plugin, web)},
			want: drain.Evicting, evict: []string{"web"},
		},
		{
			name: "a pod that a scheduler has bound meanwhile may be on its way", node: drain.Node{Since: at(-3 * time.Second)},
			want: drain.Settling, until: at(2 * time.Second),
		},
		{name: "none has come for 5 s", node: drain.Node{Since: at(-5 * time.Second)}, want: drain.Detaching},
		{
			name: "one comes late", node: drain.Node{Pods: pods(web), Volumes: drain.VolumesAttached},
			want: drain.Evicting, evict: []string{"web"},
		},
		{name: "volumes hold the instance", node: drain.Node{Pods: pods(plugin), Volumes: drain.VolumesAttached}, want: drain.Detaching},
		{
			name: "until the deadline", node: drain.Node{Volumes: drain.VolumesAttached, Deadline: at(time.Minute)},
			want: drain.Detaching, until: at(time.Minute + 1),
		},
		{name: "at the deadline", node: drain.Node{Volumes: drain.VolumesAttached, Deadline: at(0)}, want: drain.Detaching, until: at(1)},
		{name: "after it", node: drain.Node{Volumes: drain.VolumesAttached, Deadline: at(-1)}, want: drain.Done},
		{
			name: "the daemons leave last", node: drain.Node{Pods: pods(plugin), Volumes: drain.VolumesDetached},
			want: drain.EvictingDaemons, evict: []string{"csi"},
		},
		{
			name: "and not after the deadline", node: drain.Node{Pods: pods(plugin), Volumes: drain.VolumesDetached, Deadline: at(time.Minute)},
			want: drain.EvictingDaemons, evict: []string{"csi"}, until: at(time.Minute + 1),
		},
		{
			name: "after it they are deleted, and nobody waits",
			node: drain.Node{Pods: pods(pod{
				name: "csi", daemon: true, grace: time.Minute, hostPath: "/var/lib/kubelet/plugins/ebs.csi.aws.com",
			}.build()), Volumes: drain.VolumesDetached, Deadline: at(-1)},
			want: drain.Done, deletes: []string{"csi"},
		},
		{
			name: "nor for one that shuts down",
			node: drain.Node{Pods: pods(pod{
				name: "csi", daemon: true, deleted: 5 * time.Second, hostPath: "/var/lib/kubelet/plugins/ebs.csi.aws.com",
			}.build()), Volumes: drain.VolumesDetached, Deadline: at(-1)},
			want: drain.Done, deletes: []string{"csi"},
		},
		{
			name: "a pod is waited for even after the deadline", node: drain.Node{Pods: pods(web), Deadline: at(-time.Hour)},
			want: drain.Evicting, deletes: []string{"web"},
		},
		{name: "nothing is left", node: drain.Node{Volumes: drain.VolumesDetached}, want: drain.Done},
		{
			name: "before a reboot daemons leave with the others", node: drain.Node{Pods: pods(plugin), Reboot: true},
			want: drain.Evicting, evict: []string{"csi"},
		},
		{name: "a node that reboots keeps its volumes", node: drain.Node{Reboot: true}, want: drain.Done},
		{
			name: "EC2 reclaims the instance: pods with volumes leave first, whatever their tier",
			node: drain.Node{Interrupted: true, Pods: build([]pod{
				{name: "web"},
				{name: "db", volume: true},
				{name: "queue", volume: true, critical: critical},
				{name: "store", volume: true, daemon: true},
				{name: "dns", critical: critical},
				{name: "agent", daemon: true},
			})},
			want: drain.Evicting, evict: []string{"db", "queue", "store", "web"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := drain.Next(tt.node, now)
			if got.Phase != tt.want || !slices.Equal(names(got.Evict), tt.evict) || !slices.Equal(names(got.Delete), tt.deletes) {
				t.Errorf("%s, evicts %v, deletes %v; want %s, %v, %v", got.Phase, names(got.Evict), names(got.Delete), tt.want, tt.evict, tt.deletes)
			}
			if got.Until.IsZero() != (tt.until == nil) || tt.until != nil && !got.Until.Equal(*tt.until) {
				t.Errorf("until %v, want %v", got.Until, tt.until)
			}
		})
	}
}

func TestWhatAClaimRecordsOfItsDrain(t *testing.T) {
	reason := func(reason string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because(reason, reason), now)
		}
	}
	deadline := func(text string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationTerminationTimestamp, text)
		}
	}
	tests := []struct {
		name  string
		claim func(*karpv1.NodeClaim)
		want  drain.Node
	}{
		{"nothing: it begins now", func(*karpv1.NodeClaim) {}, drain.Node{Since: at(0)}},
		{"when it began", func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionDrained, condition.Because("Draining", ""), now.Add(-time.Minute))
		}, drain.Node{Since: at(-time.Minute)}},
		{"all pods were gone", func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionDrained, now) }, drain.Node{}},
		{"its deadline", deadline(now.Add(time.Hour).Format(time.RFC3339)), drain.Node{Since: at(0), Deadline: at(time.Hour)}},
		{"a deadline that nobody can read", deadline("tomorrow"), drain.Node{Since: at(0)}},
		{"a spot notice", reason(karpv1.ReasonSpotInterrupted), drain.Node{Since: at(0), Interrupted: true}},
		{"the end of a reservation", reason(karpv1.ReasonReservationInterrupted), drain.Node{Since: at(0), Interrupted: true}},
		{"drift", reason("Drifted"), drain.Node{Since: at(0)}},
	}
	same := func(a, b *time.Time) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(*b)) }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim := &karpv1.NodeClaim{}
			tt.claim(claim)
			got := drain.Of(claim, nil, now)
			if !same(got.Since, tt.want.Since) || !same(got.Deadline, tt.want.Deadline) || got.Interrupted != tt.want.Interrupted {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	if got := drain.Of(nil, pods(plugin.build()), now); got.Since != nil || len(got.Pods) != 1 {
		t.Errorf("a node without a claim: %+v", got)
	}
}
