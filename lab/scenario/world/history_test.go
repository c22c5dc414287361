package world

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func claim(name string, pods ...string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{karpv1.AnnotationNominatedPods: strings.Join(pods, ",")},
	}}
}

func ending(c *karpv1.NodeClaim) *karpv1.NodeClaim {
	now := metav1.Now()
	c.DeletionTimestamp = &now
	return c
}

func TestHistoryReportsPodsWithTwoClaims(t *testing.T) {
	type sight struct {
		claim *karpv1.NodeClaim
		gone  bool
	}
	for _, tt := range []struct {
		name   string
		sights []sight
		// late is what was there when the last claim was first seen, if not what had been seen by then.
		late []karpv1.NodeClaim
		err  error
		want int
	}{
		{name: "each its own", sights: []sight{{claim("a", "1", "2"), false}, {claim("b", "3"), false}}},
		{name: "seen again", sights: []sight{{claim("a", "1"), false}, {claim("a", "1"), false}}},
		{name: "two live claims", sights: []sight{{claim("a", "1", "2"), false}, {claim("b", "2"), false}}, want: 1},
		{name: "after the first let go of the pod", sights: []sight{{claim("a", "1", "2"), false}, {claim("a", "1"), false}, {
			claim("b", "2"),
			false,
		}}},
		{name: "after the first let go of another pod", sights: []sight{{claim("a", "1", "2"), false}, {claim("a", "2"), false}, {claim("b",
			"2"), false}}, want: 1},
		{name: "after the deletion of the first began", sights: []sight{{claim("a", "1"), false}, {ending(claim("a", "1")), false}, {claim("b",
			"1"), false}}},
		{name: "after the first was deleted", sights: []sight{{claim("a", "1"), false}, {claim("a", "1"), true}, {claim("b", "1"), false}}},
		{name: "for no pods", sights: []sight{{claim("a"), false}, {claim("b"), false}}},
		{
			name:   "that the first let go is seen later",
			sights: []sight{{claim("a", "1", "2"), false}, {claim("b", "2"), false}, {claim("a", "1"), false}},
			late:   []karpv1.NodeClaim{*claim("a", "1"), *claim("b", "2")},
		},
		{
			name:   "the deletion of the first is seen later",
			sights: []sight{{claim("a", "1"), false}, {claim("b", "1"), false}},
			late:   []karpv1.NodeClaim{*ending(claim("a", "1")), *claim("b", "1")},
		},
		{
			name:   "the first let go afterwards",
			sights: []sight{{claim("a", "1", "2"), false}, {claim("b", "2"), false}, {claim("a", "1"), false}},
			late:   []karpv1.NodeClaim{*claim("a", "1", "2"), *claim("b", "2")}, want: 1,
		},
		{
			name: "the version is compacted", sights: []sight{{claim("a", "1"), false}, {claim("b", "1"), false}}, err: errors.New("too old"),
			want: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen []karpv1.NodeClaim
			h := newHistory(func(version string) ([]karpv1.NodeClaim, error) {
				if version != "7" {
					t.Errorf("listed version %q, want that of the last claim", version)
				}
				if tt.late != nil {
					return tt.late, tt.err
				}
				return seen, tt.err
			})
			for _, s := range tt.sights {
				if s.claim.Name == "b" {
					s.claim.ResourceVersion = "7"
				}
				seen = slices.DeleteFunc(seen, func(c karpv1.NodeClaim) bool { return c.Name == s.claim.Name })
				seen = append(seen, *s.claim)
				h.see(s.claim, s.gone)
			}
			for range 2 { // a second call returns the same
				if got := h.Violations(); len(got) != tt.want {
					t.Errorf("got %q, want %d", got, tt.want)
				}
			}
		})
	}
}

func TestHistoryOfPods(t *testing.T) {
	h := newHistory(nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
	h.see(pod, false)
	if p := h.Pods()[0]; !p.Running.IsZero() || !p.Gone.IsZero() {
		t.Errorf("pending: %+v", p)
	}
	up := pod.DeepCopy()
	up.Status.Phase = corev1.PodRunning
	h.see(up, false)
	began := h.Pods()[0].Running
	h.see(up, false)
	h.see(up, true)
	p := h.Pods()[0]
	if began.IsZero() || !p.Running.Equal(began) || p.Gone.Before(began) || p.Running.Before(p.Seen) {
		t.Errorf("gone: %+v, began to run at %v", p, began)
	}
}

func TestHistoryCallsWatchers(t *testing.T) {
	h := newHistory(nil)
	var calls []string
	stop := h.Watch(func(o client.Object, gone bool) {
		word := o.GetName()
		if gone {
			word += " gone"
		}
		calls = append(calls, word)
	})
	h.see(claim("a"), false)
	h.see(claim("a"), true)
	stop()
	h.see(claim("b"), false)
	if want := []string{"a", "a gone"}; !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}
