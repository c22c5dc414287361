package preference_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/preference"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// term is a term of pod affinity with pods of an app.
func term(weight int32, app string) corev1.WeightedPodAffinityTerm {
	return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}}
}

func spread(key string, when corev1.UnsatisfiableConstraintAction) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: when}
}

// preferring is a pod with preferences of each sort.
func preferring() *corev1.PodSpec {
	zone := func(z string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{z}},
		}}
	}
	return &corev1.PodSpec{
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 1, Preference: zone("b")}, {Weight: 9, Preference: zone("a")},
			}},
			PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{term(1, "light"), term(2, "heavy")},
			},
			PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{term(1, "noise")},
			},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
			spread("rack", corev1.DoNotSchedule), spread("row", corev1.ScheduleAnyway),
			spread("room", corev1.ScheduleAnyway), spread("site", corev1.ScheduleAnyway),
		},
	}
}

func TestPreferencesAreListedInTheOrderInWhichTheyAreDropped(t *testing.T) {
	pod := preferring()
	node, err := requirement.CoreLabels().FromPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	list := preference.Of(pod, node)
	want := []string{
		"the same kubernetes.io/hostname as pods with app=heavy",
		"the same kubernetes.io/hostname as pods with app=light",
		"another kubernetes.io/hostname than pods with app=noise",
		"nodes with topology.kubernetes.io/zone=a",
		"nodes with topology.kubernetes.io/zone=b",
		"spread over row with a skew of at most 1",
		"spread over site with a skew of at most 1",
		"spread over room with a skew of at most 1",
	}
	if !slices.Equal(list.Texts, want) {
		t.Errorf("the pod prefers %q, want %q", list.Texts, want)
	}
}

func TestFatesOfPreferences(t *testing.T) {
	pod := preferring()
	node, err := requirement.CoreLabels().FromPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	list := preference.Of(pod, node)
	for kept, want := range map[int]string{
		8: "KKKKcKKK", 7: "-KKKcKKK", 5: "---KcKKK", 4: "----KKKK", 3: "-----KKK", 0: "--------",
	} {
		got := ""
		for i := range list.Texts {
			got += map[preference.Fate]string{preference.Kept: "K", preference.Dropped: "-", preference.Covered: "c"}[list.Fate(i, kept)]
		}
		if got != want {
			t.Errorf("with %d kept, the fates are %s, want %s", kept, got, want)
		}
	}
}
