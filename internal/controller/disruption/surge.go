package disruption

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// surgePollInterval is how often the Deployments of a command are checked.
const surgePollInterval = time.Second

// annotationRestartedAt is what kubectl rollout restart writes.
const annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"

// surges returns, for each candidate, the Deployments that are restarted before it is deleted: those with their only Ready pods on the
// nodes of the command, if they or their NodePool have opted in. A broken node does not wait, and where the replacement comes last, the
// next pod has no room.
func (q *Queue) surges(ctx context.Context, cmd *disrupt.Command) (map[string][]karpv1.Surge, error) {
	if q.SurgeTimeout == 0 || cmd.Reason == karpv1.DisruptionUnhealthy || cmd.Reason == karpv1.DisruptionEmpty || cmd.TerminateFirst != "" {
		return nil, nil
	}
	nodes := map[string]bool{}
	for _, c := range cmd.Candidates {
		nodes[c.Node.Name] = true
	}
	out, found := map[string][]karpv1.Surge{}, map[types.UID]bool{}
	for _, c := range cmd.Candidates {
		for _, pod := range c.Node.Pods {
			d, err := q.optedIn(ctx, c.Pool, pod)
			if err != nil {
				return nil, err
			}
			if d == nil || found[d.UID] {
				continue
			}
			found[d.UID] = true
			pods, err := q.podsOf(ctx, d)
			if err != nil {
				return nil, err
			}
			if inflight.Singleton(d, pods, nodes) {
				out[c.Node.Claim] = append(out[c.Node.Claim], karpv1.Surge{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID)})
			}
		}
	}
	return out, nil
}

// optedIn returns the Deployment of a pod; nil if it has none, or nobody has opted in for it.
func (q *Queue) optedIn(ctx context.Context, pool *karpv1.NodePool, pod *corev1.Pod) (*appsv1.Deployment, error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	// A ReplicaSet has the name of its Deployment and the hash of the template. To read all of them would cost as much as to read all pods.
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if owner == nil || owner.Kind != "ReplicaSet" || hash == "" || !snapshot.Evictable(pod, q.Now()) {
		return nil, nil
	}
	name, made := strings.CutSuffix(owner.Name, "-"+hash)
	if !made {
		return nil, nil
	}
	d := &appsv1.Deployment{}
	if err := q.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, d); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	ofPod, podErr := karpv1.WorkloadDrain(pod.Annotations)
	ofDeployment, deploymentErr := karpv1.WorkloadDrain(d.Annotations)
	if err := errors.Join(podErr, deploymentErr); err != nil {
		q.Events.Warn(d, "InvalidAnnotation", "Pods are evicted without a restart first: %v", err)
		return nil, nil
	}
	var ofPool karpv1.DrainModes
	if pool != nil {
		ofPool, _ = pool.Drain() // the pool's own reconciler reports an error
	}
	own := slices.Concat(ofPod, ofDeployment)
	if !own.Has(karpv1.DrainSurge) && (len(own) > 0 || !ofPool.Has(karpv1.DrainSurgeSingletons)) {
		return nil, nil
	}
	set := &appsv1.ReplicaSet{}
	if err := q.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if of := metav1.GetControllerOfNoCopy(set); set.UID != owner.UID || of == nil || of.UID != d.UID {
		return nil, nil
	}
	return d, nil
}

// podsOf returns the pods that a Deployment selects, from the API server: the cache has no index of them, and few Deployments are
// restarted.
func (q *Queue) podsOf(ctx context.Context, d *appsv1.Deployment) (out []*corev1.Pod, err error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	var list corev1.PodList
	err = q.Live.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector})
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, err
}

// recordSurges records on the candidates the Deployments that are restarted before they are deleted, and reports whether there are any.
func (l *Loop) recordSurges(ctx context.Context, cmd *disrupt.Command, e karpv1.DisruptionCommand) (any bool, err error) {
	surges, err := l.Queue.surges(ctx, cmd)
	if err != nil {
		return false, fmt.Errorf("look for Deployments with one pod: %w", err)
	}
	for name, list := range surges {
		own := e
		own.Surges = list
		claim := &karpv1.NodeClaim{}
		claim.Name = name
		err := patch.ObjectWithRetry(ctx, patch.Clients{Client: l.Client, Live: l.Live}, claim, func(claim *karpv1.NodeClaim) error {
			if other, ok, err := claim.DisruptionCommand(); !ok || err != nil || other.ID != e.ID {
				return errPodsChanged
			}
			return claim.SetDisruptionCommand(&own)
		})
		if err != nil {
			return false, err
		}
	}
	return len(surges) > 0, nil
}

// readSurges reads the Deployments that a command restarts.
func (q *Queue) readSurges(ctx context.Context, c *inflight.Command) error {
	nodes := map[string]bool{}
	for _, claim := range c.Candidates {
		nodes[claim.Status.NodeName] = true
	}
	for _, claim := range c.Candidates {
		record, _, _ := claim.DisruptionCommand() // inflight.Of leaves out those that cannot be read
		for _, r := range record.Surges {
			s := inflight.Surge{
				Record: r, Claim: claim.Name, Nodes: nodes, Deployment: &appsv1.Deployment{}, Timeout: cmp.Or(q.SurgeTimeout, DefaultSurgeTimeout),
			}
			err := q.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, s.Deployment)
			switch {
			case apierrors.IsNotFound(err):
				s.Deployment = nil
			case err != nil:
				return fmt.Errorf("read Deployment %s/%s: %w", r.Namespace, r.Name, err)
			default:
				if s.Pods, err = q.podsOf(ctx, s.Deployment); err != nil {
					return err
				}
				if s.Exclusive, err = q.exclusive(ctx, s.Deployment); err != nil {
					return err
				}
			}
			c.Surges = append(c.Surges, s)
		}
	}
	return nil
}

// DefaultSurgeTimeout is for commands that an earlier process has started with a restart, if this one starts none.
const DefaultSurgeTimeout = 10 * time.Minute

// exclusive returns the name of a PersistentVolumeClaim of a Deployment that only pods of one node can use; empty if there is none. One
// that does not exist yet counts as none.
func (q *Queue) exclusive(ctx context.Context, d *appsv1.Deployment) (string, error) {
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		pvc := &corev1.PersistentVolumeClaim{}
		err := q.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, pvc)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		modes := pvc.Spec.AccessModes
		if err == nil && !slices.Contains(modes, corev1.ReadWriteMany) && !slices.Contains(modes, corev1.ReadOnlyMany) {
			return pvc.Name, nil
		}
	}
	return "", nil
}

// surge takes the Deployments of a command one step further.
func (q *Queue) surge(ctx context.Context, c inflight.Command) error {
	var errs []error
	for i := range c.Surges {
		s := &c.Surges[i]
		now := q.Now()
		step := s.Next(now)
		switch {
		case step.Reason == inflight.ReasonRolloutInProgress:
			q.Events.Normal(s.Deployment, step.Reason, "%s", step.Message)
		case step.Reason != "":
			q.Events.Warn(s.Deployment, step.Reason, "%s", step.Message)
		}
		switch step.Action {
		case inflight.SurgeBegin:
			errs = append(errs, q.recordSurge(ctx, s, func(r *karpv1.Surge) { r.Began = &metav1.Time{Time: now.UTC()} }))
		case inflight.SurgeRecord:
			errs = append(errs, q.recordSurge(ctx, s, func(r *karpv1.Surge) {
				if r.Restarted == nil {
					r.Restarted, r.Generation = &metav1.Time{Time: now.UTC()}, s.Deployment.Generation
				}
			}))
		case inflight.SurgeGiveUp:
			errs = append(errs, q.recordSurge(ctx, s, func(r *karpv1.Surge) { r.GaveUp = true }))
		case inflight.SurgeRestart:
			errs = append(errs, q.restart(ctx, s, c.Record))
		}
	}
	return errors.Join(errs...)
}

// recordSurge changes the record of a Deployment on its candidate.
func (q *Queue) recordSurge(ctx context.Context, s *inflight.Surge, change func(*karpv1.Surge)) error {
	claim := &karpv1.NodeClaim{}
	claim.Name = s.Claim
	err := patch.ObjectWithRetry(ctx, patch.Clients{Client: q.Client, Live: q.Live}, claim, func(claim *karpv1.NodeClaim) error {
		e, ok, err := claim.DisruptionCommand()
		if !ok || err != nil {
			return err
		}
		for i := range e.Surges {
			if e.Surges[i].UID == s.Record.UID {
				change(&e.Surges[i])
			}
		}
		return claim.SetDisruptionCommand(&e)
	})
	return client.IgnoreNotFound(err)
}

// restart restarts a Deployment as kubectl rollout restart does, with the time that is recorded, and only in the version that was read.
// Nothing is restarted while deletions are paused: the nodes would stay.
func (q *Queue) restart(ctx context.Context, s *inflight.Surge, e karpv1.DisruptionCommand) error {
	claim := &karpv1.NodeClaim{}
	if err := q.Client.Get(ctx, client.ObjectKey{Name: s.Claim}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := q.Guard.Budget.Paused(ctx, claim.Labels[karpv1.LabelNodePool]); err != nil {
		return err
	}
	d := s.Deployment
	annotations := map[string]string{annotationRestartedAt: s.Record.Restarted.UTC().Format(time.RFC3339)}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": d.ResourceVersion},
		"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}},
	})
	if err != nil {
		return err
	}
	err = q.Client.Patch(ctx, d.DeepCopy(), client.RawPatch(types.MergePatchType, body))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the next step reads it again
		return nil
	case apierrors.IsForbidden(err):
		q.Events.Warn(d, inflight.ReasonSurgeImpossible,
			"Pods are evicted without a restart first: the controller may not patch Deployments; set settings.surgeDrain of the chart: %v", err)
		return q.recordSurge(ctx, s, func(r *karpv1.Surge) { r.GaveUp = true })
	case err != nil:
		return fmt.Errorf("restart Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	q.Log.Info("restarted a deployment before its node goes", "Deployment", d.Namespace+"/"+d.Name, "NodeClaim", s.Claim, "decision-id", e.ID)
	q.Events.Normal(d, "SurgeRestarted", "Restarted to move its pod to another node before the node of NodeClaim %s goes: %s, decision %s",
		s.Claim, e.Reason, e.ID)
	return nil
}
