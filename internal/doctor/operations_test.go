package doctor

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rival is a pod of that image, run by the object of that kind and name; of a kind of "" it stands alone.
func rival(pod, image, kind, owner string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: pod, Labels: map[string]string{"pod-template-hash": "7d9f"}},
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
	if kind != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: &yes}}
	}
	return p
}

func TestOtherControllers(t *testing.T) {
	const autoscaler = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0"
	const handler = "public.ecr.aws/aws-ec2/aws-node-termination-handler@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
	terminated := rival("a", autoscaler, "", "")
	terminated.Status.Phase = corev1.PodSucceeded
	for _, tt := range []struct {
		name string
		pods []corev1.Pod
		want []string // object and command
	}{
		{"none", []corev1.Pod{rival("a", "localhost:5000/my-cluster-autoscaler-exporter", "", "")}, nil},
		{"two replicas of a Deployment", []corev1.Pod{rival("a", autoscaler, "ReplicaSet", "ca-aws-7d9f"), rival("b", autoscaler, "ReplicaSet",
			"ca-aws-7d9f")}, []string{
			"Deployment kube-system/ca-aws: kubectl -n kube-system scale deployment ca-aws --replicas 0",
		}},
		{
			"a DaemonSet",
			[]corev1.Pod{rival("a", handler, "DaemonSet", "nth")},
			[]string{"DaemonSet kube-system/nth: kubectl -n kube-system delete daemonset nth"},
		},
		{
			"a pod alone",
			[]corev1.Pod{rival("a", "localhost:5000/cluster-autoscaler", "", "")},
			[]string{"Pod kube-system/a: kubectl -n kube-system delete pod a"},
		},
		{"one that has terminated", []corev1.Pod{terminated}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy()
			for i := range tt.pods {
				f.Pods = append(f.Pods, &tt.pods[i])
			}
			var got []string
			for _, finding := range Run(f).Findings {
				got = append(got, finding.Object+": "+finding.Command)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
