package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// pods takes the pods of one node through their stages. One goroutine owns all of its state, and
// makes the calls for all pods of the node, one after the other.
type pods struct {
	cfg      Config
	renderer gotpl.Renderer
	ips      *addresses
	states   map[types.UID]*podState
	events   chan podEvent
	volumes  *volumes
	mounted  chan types.UID
}

// podEvent is a change of a pod in the API server.
type podEvent struct {
	pod  *corev1.Pod
	gone bool
}

// podState is a pod and what happens to it next.
type podState struct {
	pod *corev1.Pod
	// admitted pods count against what the node has until they end.
	admitted bool
	// stage is what comes next; nil if nothing does until the pod changes.
	stage *lifecycle.Stage
	due   time.Time
	// step is where the stage goes on, and failures how often it failed there.
	step, failures int
}

func newPods(cfg Config) *pods {
	p := &pods{
		cfg: cfg, ips: newAddresses(cfg.PodIPs), states: map[types.UID]*podState{}, events: make(chan podEvent),
		volumes: newVolumes(cfg), mounted: make(chan types.UID),
	}
	node := func(...any) string { return cfg.IP.String() }
	nodes := func(...any) []string { return []string{cfg.IP.String()} }
	p.renderer = gotpl.NewRenderer(gotpl.FuncMap{
		// The functions that kwok offers to templates.
		"NodeIP": node, "NodeIPWith": node, "NodeIPsWith": nodes,
		"PodIP": func() (string, error) { return p.ips.of("") },
		"PodIPWith": func(_ string, hostNetwork bool, uid, _, _ string) (string, error) {
			return p.podIP(hostNetwork, uid)
		},
		"PodIPsWith": func(_ string, hostNetwork bool, uid, _, _ string) ([]string, error) {
			ip, err := p.podIP(hostNetwork, uid)
			return []string{ip}, err
		},
	})
	return p
}

func (p *pods) podIP(hostNetwork bool, uid string) (string, error) {
	if hostNetwork {
		return p.cfg.IP.String(), nil
	}
	return p.ips.of(types.UID(uid))
}

// run watches the pods of the node and works on them until ctx is done.
func (p *pods) run(ctx context.Context) {
	send := func(pod *corev1.Pod, gone bool) {
		select {
		case p.events <- podEvent{pod: pod, gone: gone}:
		case <-ctx.Done():
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(
			&cache.ListWatch{ListWithContextFunc: p.list, WatchFuncWithContext: p.watch}, p.cfg.Client),
		ObjectType: &corev1.Pod{},
		Handler:    handler(send),
	})
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	p.work(ctx)
	wg.Wait()
}

// work takes the pods that come as events through their stages until ctx is done.
func (p *pods) work(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		p.volumes.run(ctx, func(uid types.UID) {
			select {
			case p.mounted <- uid:
			case <-ctx.Done():
			}
		})
	})
	p.loop(ctx)
	wg.Wait()
}

// handler sends what becomes of each pod. One that takes the name of another while the API server cannot be watched
// comes as a change of that, which is gone then.
func handler(send func(pod *corev1.Pod, gone bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { send(o.(*corev1.Pod), false) },
		UpdateFunc: func(before, now any) {
			if before := before.(*corev1.Pod); before.UID != now.(*corev1.Pod).UID {
				send(before, true)
			}
			send(now.(*corev1.Pod), false)
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				send(pod, true)
			}
		},
	}
}

// selector is the only list of pods that the Node authorizer allows.
func (p *pods) selector() string {
	return fields.OneTermEqualSelector("spec.nodeName", p.cfg.Name).String()
}

func (p *pods) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.FieldSelector = p.selector()
	return p.cfg.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
}

func (p *pods) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector = p.selector()
	return p.cfg.Client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, o)
}

func (p *pods) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := p.next()
		var wake <-chan time.Time
		if next != nil {
			timer.Reset(time.Until(next.due))
			wake = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case e := <-p.events:
			p.observe(ctx, e)
		case uid := <-p.mounted:
			if s := p.states[uid]; s != nil && s.admitted && s.stage == nil {
				p.plan(ctx, s)
			}
		case <-wake:
			p.play(ctx, next)
		}
	}
}

// next is the pod with a stage that is due first.
func (p *pods) next() *podState {
	var first *podState
	for _, s := range p.states {
		if s.stage == nil {
			continue
		}
		if first == nil || s.due.Before(first.due) || s.due.Equal(first.due) && s.pod.UID < first.pod.UID {
			first = s
		}
	}
	return first
}

// observe takes note of what the API server has.
func (p *pods) observe(ctx context.Context, e podEvent) {
	startable := p.volumes.see(e.pod, e.gone)
	if e.gone {
		p.ips.release(e.pod.UID)
		delete(p.states, e.pod.UID)
		return
	}
	s := p.states[e.pod.UID]
	if s == nil {
		s = &podState{admitted: e.pod.Status.StartTime != nil}
		p.states[e.pod.UID] = s
	} else if order, err := resourceversion.CompareResourceVersion(e.pod.ResourceVersion, s.pod.ResourceVersion); err == nil && order <= 0 {
		return // what our own last write returned, or older
	}
	s.pod = e.pod
	if !s.admitted && !ended(s.pod) && s.pod.DeletionTimestamp == nil && !p.admit(ctx, s) {
		return
	}
	if startable {
		p.plan(ctx, s)
	}
}

// plan finds the stage that matches the pod as it is. A stage that was due already keeps its time
// unless the change brings it forward, as a shorter grace period does.
func (p *pods) plan(ctx context.Context, s *podState) {
	event := &lifecycle.Event{Labels: s.pod.Labels, Annotations: s.pod.Annotations, Data: p.withFault(s.pod)}
	stage, err := p.cfg.Stages.pods.Match(ctx, event)
	if err != nil {
		p.logf('E', `"Error syncing pod, skipping" err="%s" pod="%s/%s"`, oneLine(err), s.pod.Namespace, s.pod.Name)
		return
	}
	if stage == nil {
		s.stage = nil
		return
	}
	now := time.Now()
	delay, _, err := stage.Delay(ctx, event, now)
	if err != nil {
		p.logf('E', `"Error syncing pod, delay ignored" err="%s" pod="%s/%s"`, oneLine(err), s.pod.Namespace, s.pod.Name)
	}
	due := now.Add(max(delay, 0))
	if s.stage == stage {
		if due.Before(s.due) {
			s.due = due
		}
		return
	}
	s.stage, s.due, s.step, s.failures = stage, due, 0, 0
}

// withFault is the pod as the stages see it: what is wrong with it on this node is an annotation.
func (p *pods) withFault(pod *corev1.Pod) *corev1.Pod {
	if p.cfg.PodFault == nil {
		return pod
	}
	fault := p.cfg.PodFault(pod)
	if fault == "" {
		return pod
	}
	out := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, "lab.dovetail.sh/fault", fault)
	return out
}

// play applies a stage.
func (p *pods) play(ctx context.Context, s *podState) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before, deleted := s.pod.ResourceVersion, false
	step, err := s.stage.DoSteps(s.step, s.pod.Finalizers, s.pod, p.renderer,
		func(event *internalversion.StageEvent) error { return p.sendEvent(ctx, s.pod, event) },
		func() error {
			deleted = true
			return p.deletePod(ctx, s.pod)
		},
		func(patch *lifecycle.Patch) error { return p.patchPod(ctx, s, patch) },
		func(*lifecycle.Apply) error { return fmt.Errorf("a kubelet does not apply objects") },
	)
	switch {
	case err == nil:
	default:
		// Also where the pod is not found, or another has its name: an API server that has just started may not know it yet. Once the watch
		// shows that it is gone, nothing is tried any more.
		p.logf('E', `"Error syncing pod, will retry" err="%s" pod="%s/%s" stage=%s`, oneLine(err), s.pod.Namespace, s.pod.Name, s.stage.Name())
		s.step = max(step, 0)
		s.due = time.Now().Add(min(100*time.Millisecond<<s.failures, 10*time.Second))
		s.failures = min(s.failures+1, 10)
		return
	}
	s.stage = nil
	if !deleted && s.pod.ResourceVersion != before {
		p.plan(ctx, s) // a stage that changed nothing is not played again until something does
	}
}

// patchPod writes as the node, and only to this very pod, not to one that took its name.
func (p *pods) patchPod(ctx context.Context, s *podState, patch *lifecycle.Patch) error {
	data := patch.Data
	if patch.Type != types.JSONPatchType {
		var err error
		if data, err = withUID(data, s.pod.UID); err != nil {
			return err
		}
	}
	var subresources []string
	if patch.Subresource != "" {
		subresources = []string{patch.Subresource}
	}
	pod, err := p.cfg.Client.CoreV1().Pods(s.pod.Namespace).Patch(ctx, s.pod.Name, patch.Type, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return err
	}
	s.pod = pod
	return nil
}

// withUID adds the precondition that the object is this one.
func withUID(patch []byte, uid types.UID) ([]byte, error) {
	document := map[string]any{}
	if err := json.Unmarshal(patch, &document); err != nil {
		return nil, fmt.Errorf("stage's patch: %w", err)
	}
	metadata, _ := document["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = string(uid)
	document["metadata"] = metadata
	return json.Marshal(document)
}

// deletePod deletes the object of a pod after its containers exited.
func (p *pods) deletePod(ctx context.Context, pod *corev1.Pod) error {
	if why := p.volumes.blocked(pod.UID); why != "" {
		return fmt.Errorf("unmount volumes: %s", why)
	}
	return p.cfg.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}

// sendEvent records the event of a stage.
func (p *pods) sendEvent(ctx context.Context, pod *corev1.Pod, e *internalversion.StageEvent) error {
	now := metav1.Now()
	_, err := p.cfg.Client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "kubelet", Host: p.cfg.Name},
		ReportingController: "kubelet", ReportingInstance: p.cfg.Name,
	}, metav1.CreateOptions{})
	return err
}

func (p *pods) logf(severity byte, format string, args ...any) {
	p.cfg.Log(severity, fmt.Sprintf(format, args...))
}
