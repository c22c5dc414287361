package world

import (
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

func TestHistoryNoticesPodsWithTwoClaims(t *testing.T) {
	type sight struct {
		claim *karpv1.NodeClaim
		gone  bool
	}
	for _, tt := range []struct {
		name   string
		sights []sight
		want   int
	}{
		{"each its own", []sight{{claim("a", "1", "2"), false}, {claim("b", "3"), false}}, 0},
		{"seen again", []sight{{claim("a", "1"), false}, {claim("a", "1"), false}}, 0},
		{"bought twice", []sight{{claim("a", "1", "2"), false}, {claim("b", "2"), false}}, 1},
		{"bought anew after the first let go", []sight{{claim("a", "1", "2"), false}, {claim("a", "1"), false}, {claim("b", "2"), false}}, 0},
		{"bought anew after the first let go of another", []sight{{claim("a", "1", "2"), false}, {claim("a", "2"), false}, {claim("b", "2"), false}}, 1},
		{"bought anew after the first began to end", []sight{{claim("a", "1"), false}, {ending(claim("a", "1")), false}, {claim("b", "1"), false}}, 0},
		{"bought anew after the first was gone", []sight{{claim("a", "1"), false}, {claim("a", "1"), true}, {claim("b", "1"), false}}, 0},
		{"for no pods", []sight{{claim("a"), false}, {claim("b"), false}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory()
			for _, s := range tt.sights {
				h.see(s.claim, s.gone)
			}
			if got := h.Violations(); len(got) != tt.want {
				t.Errorf("got %q, want %d", got, tt.want)
			}
		})
	}
}

func TestHistoryOfPods(t *testing.T) {
	h := newHistory()
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

func TestHistoryTellsThoseWhoWatch(t *testing.T) {
	h := newHistory()
	var told []string
	stop := h.Watch(func(o client.Object, gone bool) {
		word := o.GetName()
		if gone {
			word += " gone"
		}
		told = append(told, word)
	})
	h.see(claim("a"), false)
	h.see(claim("a"), true)
	stop()
	h.see(claim("b"), false)
	if want := []string{"a", "a gone"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
