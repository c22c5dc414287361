package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
)

func TestResume(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		pools  []string
		all    bool
		prints []string
		// resumed are the pools that get the annotation.
		resumed []string
		fails   string
	}{
		{name: "without arguments it lists", prints: []string{"nodepool/batch: 12 nodes", "dovetail resume --all"}},
		{name: "one", pools: []string{"batch"}, prints: []string{"nodepool/batch: deletions resume"}, resumed: []string{"batch"}},
		{
			name: "all that are paused", all: true, prints: []string{"nodepool/batch: deletions resume", "nodepool/web: deletions resume"},
			resumed: []string{"batch", "web"},
		},
		{name: "one that is not paused", pools: []string{"idle"}, prints: []string{"nodepool/idle: deletions are not paused"}},
		{name: "one that does not exist", pools: []string{"bacth"}, fails: `there is no NodePool "bacth"; there are: batch, idle, web`},
		{name: "none is changed if one does not exist", pools: []string{"batch", "bacth"}, fails: "there is no NodePool"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			paused := func(name string) *karpv1.NodePool {
				pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
				condition.SetTrueWithReason(pool, karpv1.ConditionBlastRadiusExceeded, condition.Because("LimitExceeded", "12 nodes"), at)
				return pool
			}
			c := apitest.New(t, func() time.Time { return at }, paused("batch"), paused("web"),
				&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "idle"}})
			var out bytes.Buffer
			err := resumeRun{client: c, now: func() time.Time { return at }, out: &out}.run(t.Context(), tt.pools, tt.all)
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			for _, line := range tt.prints {
				if !strings.Contains(out.String(), line) {
					t.Errorf("%q is missing in:\n%s", line, out.String())
				}
			}
			var pools karpv1.NodePoolList
			if err := c.List(t.Context(), &pools, client.UnsafeDisableDeepCopy); err != nil {
				t.Fatal(err)
			}
			var resumed []string
			for _, pool := range pools.Items {
				if pool.Annotations[karpv1.AnnotationResumeDeletions] == "2026-03-14T12:00:00Z" {
					resumed = append(resumed, pool.Name)
				}
			}
			if strings.Join(resumed, " ") != strings.Join(tt.resumed, " ") {
				t.Errorf("resumed %v, want %v", resumed, tt.resumed)
			}
		})
	}
}
