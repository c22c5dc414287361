package buffer_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
)

// quotaOf is a ResourceQuota with amounts as name and value.
func quotaOf(name string, hard, used corev1.ResourceList, edit ...func(*corev1.ResourceQuota)) corev1.ResourceQuota {
	q := corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Used: used},
	}
	for _, f := range edit {
		f(&q)
	}
	return q
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// A buffer keeps room for no more pods than the quotas of its namespace would let its tenant create.
func TestQuotasBoundTheReplicasOfABuffer(t *testing.T) {
	deadline := int64(60)
	pod := func(edit ...func(*corev1.PodSpec)) *corev1.PodTemplateSpec {
		out := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: amounts("cpu", "2", "memory", "1Gi", "nvidia.com/gpu", "1"), Limits: amounts("cpu", "4", "memory", "1Gi", "nvidia.com/gpu", "1"),
		}}}}}
		for _, f := range edit {
			f(&out.Spec)
		}
		return out
	}
	scoped := func(scopes ...corev1.ResourceQuotaScope) func(*corev1.ResourceQuota) {
		return func(q *corev1.ResourceQuota) { q.Spec.Scopes = scopes }
	}
	priority := func(op corev1.ScopeSelectorOperator, values ...string) func(*corev1.ResourceQuota) {
		return func(q *corev1.ResourceQuota) {
			q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values},
			}}
		}
	}
	important := func(s *corev1.PodSpec) { s.PriorityClassName = "important" }
	for name, tt := range map[string]struct {
		quotas []corev1.ResourceQuota
		pod    *corev1.PodTemplateSpec
		want   int32
	}{
		"no quota":                 {nil, pod(), 10},
		"requests.cpu":             {[]corev1.ResourceQuota{quotaOf("q", amounts("requests.cpu", "9"), nil)}, pod(), 4},
		"cpu is requests.cpu":      {[]corev1.ResourceQuota{quotaOf("q", amounts("cpu", "9"), nil)}, pod(), 4},
		"less than one pod":        {[]corev1.ResourceQuota{quotaOf("q", amounts("cpu", "1"), nil)}, pod(), 0},
		"used counts":              {[]corev1.ResourceQuota{quotaOf("q", amounts("cpu", "9"), amounts("cpu", "4"))}, pod(), 2},
		"more used than allowed":   {[]corev1.ResourceQuota{quotaOf("q", amounts("cpu", "9"), amounts("cpu", "40"))}, pod(), 0},
		"memory":                   {[]corev1.ResourceQuota{quotaOf("q", amounts("memory", "3Gi"), nil)}, pod(), 3},
		"limits.cpu":               {[]corev1.ResourceQuota{quotaOf("q", amounts("limits.cpu", "9"), nil)}, pod(), 2},
		"extended resources":       {[]corev1.ResourceQuota{quotaOf("q", amounts("requests.nvidia.com/gpu", "5"), nil)}, pod(), 5},
		"pods":                     {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "7"), amounts("pods", "1"))}, pod(), 6},
		"count/pods":               {[]corev1.ResourceQuota{quotaOf("q", amounts("count/pods", "3"), nil)}, pod(), 3},
		"other resources":          {[]corev1.ResourceQuota{quotaOf("q", amounts("services", "0", "count/jobs.batch", "0"), nil)}, pod(), 10},
		"the tightest of several":  {[]corev1.ResourceQuota{quotaOf("a", amounts("pods", "7"), nil), quotaOf("b", amounts("cpu", "6"), nil)}, pod(), 3},
		"of jobs only":             {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, scoped(corev1.ResourceQuotaScopeTerminating))}, pod(), 10},
		"of jobs, and this is one": {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, scoped(corev1.ResourceQuotaScopeTerminating))}, pod(func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = &deadline }), 1},
		"of best effort":           {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, scoped(corev1.ResourceQuotaScopeBestEffort))}, pod(), 10},
		"of others":                {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, scoped(corev1.ResourceQuotaScopeNotBestEffort))}, pod(), 1},
		"of a priority class":      {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, priority(corev1.ScopeSelectorOpIn, "important"))}, pod(), 10},
		"of its priority class":    {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, priority(corev1.ScopeSelectorOpIn, "important"))}, pod(important), 1},
		"of other classes":         {[]corev1.ResourceQuota{quotaOf("q", amounts("pods", "1"), nil, priority(corev1.ScopeSelectorOpNotIn, "important"))}, pod(important), 10},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := buffer.NewQuotas(tt.quotas).Admit(tt.pod, 10)
			if got != tt.want || (why == "") != (got == 10) {
				t.Errorf("%d replicas (%s), want %d", got, why, tt.want)
			}
		})
	}
}

// What one buffer takes, another of the namespace does not get.
func TestBuffersOfANamespaceShareItsQuota(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "1")}},
	}}}
	quotas := buffer.NewQuotas([]corev1.ResourceQuota{quotaOf("q", amounts("requests.cpu", "5"), nil)})
	first, _ := quotas.Admit(template, 3)
	second, why := quotas.Admit(template, 3)
	third, _ := quotas.Admit(template, 3)
	if first != 3 || second != 2 || third != 0 || why != `ResourceQuota "q" allows 5 of requests.cpu in the namespace` {
		t.Errorf("%d, %d and %d replicas (%s), want 3, 2 and 0", first, second, third, why)
	}
}
