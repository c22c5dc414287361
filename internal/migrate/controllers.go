package migrate

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// LeaseName is the name of the leader lease of Karpenter, and of Dovetail.
const LeaseName = "karpenter-leader-election"

// clockSkew sets how far the clocks of a node and of this computer may differ.
const clockSkew = 30 * time.Second

func checkControllers(f *Facts) (out []Result, _ string) {
	k := f.Karpenter()
	for _, i := range f.installations(karpenter) {
		if k == nil || i.Object() == k.Object() || i.Replicas == 0 {
			continue
		}
		out = append(out, Result{
			Status: Obstacle, Object: i.Object(), Field: "spec.replicas", Seen: "runs Karpenter beside " + k.Object(),
			Remedy: fmt.Sprintf("find out which of them acts, and scale the other: kubectl -n %s scale deployment %s --replicas 0",
				i.Namespace, i.Name),
		})
	}
	for _, i := range f.installations(dovetail) {
		if i.Replicas == 0 || f.apply(i).Shadow {
			continue
		}
		out = append(out, Result{
			Status: Obstacle, Object: i.Object(), Field: "spec.replicas", Seen: "Dovetail runs here already",
			Remedy: fmt.Sprintf("scale it down until Karpenter is: kubectl -n %s scale deployment %s --replicas 0", i.Namespace, i.Name),
		})
	}
	out = append(out, f.withoutDeployment()...)
	if len(out) == 0 { // what has the lease is known else
		out = append(out, f.holders()...)
	}
	if why := f.missing([]doctor.Fact{Leases}); why != "" {
		out = append(out, Result{Status: NotChecked, Seen: why})
	}
	out = append(out, f.fromDoctor(Warning, "operations-other-controller")...)
	return out, "no other controller launches or drains nodes"
}

// withoutDeployment finds controllers by their pods, where no Deployment has them: a StatefulSet, a DaemonSet, a Pod of its own.
func (f *Facts) withoutDeployment() (out []Result) {
	known := map[string]bool{}
	for i := range f.Deployments {
		known["Deployment "+f.Deployments[i].Namespace+"/"+f.Deployments[i].Name] = true
	}
	for _, p := range f.Cluster.Pods {
		is := runs(&p.Spec)
		object, stop := doctor.Runner(p)
		if is == other || known[object] || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		known[object] = true
		i := installation(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: p.Spec}},
		})
		if is == dovetail && f.apply(i).Shadow {
			continue
		}
		out = append(out, Result{
			Status: Obstacle, Object: object, Field: "image",
			Seen:   fmt.Sprintf("runs %s, and is no Deployment of this cluster that the plan stops", i.container().Image),
			Remedy: "stop it before Dovetail is installed: " + stop,
		})
	}
	return out
}

// holders finds controllers by the leader lease that they renew, where neither image nor name gives them away: one that runs outside the
// cluster, or was built by somebody else.
func (f *Facts) holders() (out []Result) {
	k := f.Karpenter()
	for i := range f.Leases {
		lease := &f.Leases[i]
		holder := holderOf(lease, f.Cluster.Now)
		own := k != nil && lease.Namespace == k.Namespace &&
			(strings.HasPrefix(holder, k.Name+"-") || k.deployment.Spec.Template.Spec.HostNetwork) // then it has the name of the node
		if holder == "" || own {
			continue
		}
		out = append(out, Result{
			Status: Obstacle, Object: "Lease " + lease.Namespace + "/" + lease.Name, Field: "spec.holderIdentity",
			Seen:   fmt.Sprintf("%s renews it, and is no pod of the Deployment that the plan stops: a second controller acts", holder),
			Remedy: "find it and stop it before Dovetail is installed: kubectl get pods -A -o wide, and processes outside the cluster",
		})
	}
	return out
}

// holderOf returns who renews a lease; empty if nobody does.
func holderOf(lease *coordinationv1.Lease, now time.Time) string {
	s := lease.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return ""
	}
	if now.Sub(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second+clockSkew {
		return ""
	}
	return *s.HolderIdentity
}
