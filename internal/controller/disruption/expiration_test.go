package disruption

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// expiringNodes are full nodes of the ages, with an expireAfter of 10 hours, in a pool that replaces them within the last two.
func expiringNodes(ages map[string]time.Duration, pool ...func(*karpv1.NodePool)) []client.Object {
	pool = append([]func(*karpv1.NodePool){func(p *karpv1.NodePool) {
		p.Annotations = map[string]string{karpv1.AnnotationExpiration: `{"mode":"Graceful","jitter":"0%"}`}
	}}, pool...)
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", pool...)}
	for _, name := range slices.Sorted(maps.Keys(ages)) {
		age := ages[name]
		objects = append(objects,
			controllertest.Claim(name, controllertest.Initialized, func(c *karpv1.NodeClaim) {
				c.UID = types.UID("uid-" + name)
				c.CreationTimestamp.Time = controllertest.Start.Add(-age)
				c.Spec.ExpireAfter = karpv1.After(10 * time.Hour)
			}),
			controllertest.ReadyNode(name, asInstance("m.small")),
			controllertest.Pod("pod-"+name, "node-"+name, requestsCPU("1500m")),
		)
	}
	return objects
}

// Replacement first, oldest first, within the budget, with the reason Expired in whatever people and programs read.
func TestNodesAreReplacedBeforeTheyExpire(t *testing.T) {
	f := controllertest.New(t, expiringNodes(map[string]time.Duration{
		"fresh": time.Hour, "old": 9 * time.Hour, "oldest": 10*time.Hour - time.Minute,
	}, budget("1"))...)
	l := newLoopWithTypes(f)
	var log strings.Builder
	l.Log = slog.New(slog.NewTextHandler(&log, nil))
	passes(t, l)
	passes(t, l)
	created := replacements(f)
	if len(created) != 1 || !isTainted(f, "node-oldest") || isTainted(f, "node-old") || isTainted(f, "node-fresh") {
		t.Fatalf("%d replacements; tainted: fresh %v, old %v, oldest %v", len(created),
			isTainted(f, "node-fresh"), isTainted(f, "node-old"), isTainted(f, "node-oldest"))
	}
	if got := created[0].Annotations[karpv1.AnnotationLaunchReason]; got != "Expired" {
		t.Errorf("launch reason %q", got)
	}
	if c, _ := condition.Get(f.Claim("oldest"), karpv1.ConditionDisruptionReason); c.Reason != "Expired" {
		t.Errorf("condition DisruptionReason has the reason %q", c.Reason)
	}
	if !strings.Contains(log.String(), "Expired/") || !strings.Contains(log.String(), "reason=expired") {
		t.Errorf("log:\n%s", log.String())
	}
	if n := testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues("replace", "expired", "")); n != 1 {
		t.Errorf("%v decisions", n)
	}
	if len(deletingClaims(f)) > 0 {
		t.Fatal("deleted before the replacement was initialized")
	}
	f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
	runDue(t, l)
	if got := deletingClaims(f); !slices.Equal(got, []string{"oldest"}) {
		t.Errorf("deleted %v", got)
	}
	if got := f.Claim("oldest").Annotations[karpv1.AnnotationDeletionCause]; !strings.Contains(got, `"planned"`) || !strings.Contains(got, "Expired") {
		t.Errorf("deletion cause %s", got)
	}
}

func TestThePausedReasonExpiredReplacesNothing(t *testing.T) {
	f := controllertest.New(t, expiringNodes(map[string]time.Duration{"old": 9 * time.Hour}, budget("1"))...)
	l := newLoopWithTypes(f)
	l.Breaker = pausedBreaker("general")
	if passes(t, l); len(replacements(f)) > 0 {
		t.Error("replaced")
	}
	if said := f.RecordedEvents(); !slices.ContainsFunc(said, func(s string) bool {
		return strings.Contains(s, "Nodes are not replaced for reason Expired: too many failed")
	}) {
		t.Errorf("events %q", said)
	}
}

func TestNodesOfStaticPoolsAreReplacedBeforeTheyExpire(t *testing.T) {
	replicas := int64(1)
	f := controllertest.New(t, expiringNodes(map[string]time.Duration{"old": 9 * time.Hour}, budget("1"),
		func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas })...)
	l := newLoopWithTypes(f)
	if passes(t, l); len(replacements(f)) != 1 || !isTainted(f, "node-old") {
		t.Errorf("%d replacements", len(replacements(f)))
	}
}
