package nodes_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/nodes"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// expiring is a node with a claim of the pool.
func expiring(name string, change func(*karpv1.NodeClaim)) []client.Object {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(controllertest.Start), Labels: map[string]string{karpv1.LabelNodePool: "general"},
	}}
	return []client.Object{n, controllertest.Claim("claim-"+name, change, func(c *karpv1.NodeClaim) { c.Status.NodeName = name })}
}

func TestWhenNodesExpire(t *testing.T) {
	bounded := &metav1.Duration{Duration: 10 * time.Second}
	after := func(d time.Duration, bound *metav1.Duration) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) { c.Spec.ExpireAfter, c.Spec.TerminationGracePeriod = karpv1.After(d), bound }
	}
	objects := []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign", CreationTimestamp: metav1.NewTime(controllertest.Start)}},
		controllertest.Pool("general", func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{karpv1.AnnotationExpiration: `{"mode":"Graceful","grace":"5s"}`}
		}),
	}
	objects = append(objects, expiring("in-40s", after(100*time.Second, nil))...)
	objects = append(objects, expiring("over", after(50*time.Second, bounded))...)
	objects = append(objects, expiring("never", func(c *karpv1.NodeClaim) {
		c.Spec.ExpireAfter, c.Spec.TerminationGracePeriod = karpv1.Never(), bounded
	})...)
	objects = append(objects, expiring("draining", func(c *karpv1.NodeClaim) {
		c.Spec.ExpireAfter = karpv1.Never()
		c.TightenTerminationDeadline(controllertest.Start.Add(90 * time.Second))
	})...)
	f := controllertest.New(t, objects...)
	f.Clock = controllertest.Start.Add(time.Minute)
	cfg := nodes.Config{Cache: f.API, Now: f.Now, Log: slog.New(slog.DiscardHandler), Labels: []string{karpv1.LabelNodePool}}
	const want = `
# HELP karpenter_nodes_time_until_expiration_seconds Time until expireAfter of a node has passed; negative once it has.
# TYPE karpenter_nodes_time_until_expiration_seconds gauge
karpenter_nodes_time_until_expiration_seconds{managed="true",node_name="in-40s",nodepool="general",phase=""} 40
karpenter_nodes_time_until_expiration_seconds{managed="true",node_name="over",nodepool="general",phase=""} -10
# HELP karpenter_nodes_time_until_forced_termination_seconds Time until the pods of a node are deleted, whatever PodDisruptionBudgets allow; negative once it has passed.
# TYPE karpenter_nodes_time_until_forced_termination_seconds gauge
karpenter_nodes_time_until_forced_termination_seconds{managed="true",node_name="draining",nodepool="general",phase=""} 30
karpenter_nodes_time_until_forced_termination_seconds{managed="true",node_name="over",nodepool="general",phase=""} 5
`
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		c := nodes.NewExpirationCollector(cfg) // shadow mode has no other
		go func() { _ = c.Start(ctx) }()
		synctest.Wait()
		if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		all := nodes.NewCollector(cfg)
		go func() { _ = all.Start(ctx) }()
		synctest.Wait()
		if err := testutil.CollectAndCompare(all, strings.NewReader(want), "karpenter_nodes_time_until_expiration_seconds",
			"karpenter_nodes_time_until_forced_termination_seconds"); err != nil {
			t.Error(err)
		}
		stop()
		synctest.Wait()
	})
}
