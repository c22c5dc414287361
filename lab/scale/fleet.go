package scale

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
	"github.com/dovetail-k8s/dovetail/lab/store"
)

//go:embed cluster.yaml
var clusterText string

var clusterTemplate = template.Must(template.New("cluster").Parse(clusterText))

// fleet is a cluster with its samples, and what was copied of them.
type fleet struct {
	*world.Cluster
	aws   *awsim.Sim
	size  Size
	store *store.Store

	samples []sample
	// kinds are the pods that ran, one of each workload; daemonPods those of one node; pending those of the bursts.
	kinds, daemonPods, pending []*corev1.Pod
	hosts                      []host
	// launched is informed of each instance that is launched for a copy before anybody sees it; nil if nobody cares.
	launched func(h host, of *sample)
}

// zones are those in which nodes are.
func (f *fleet) zones() []string {
	var out []string
	for _, z := range f.aws.EC2().Zones()[:3] {
		out = append(out, z.Name)
	}
	return out
}

// apply applies the NodePool with this disruption budget, and a pod for a node in each of the zones.
func (f *fleet) apply(ctx context.Context, budget string, pins []string) error {
	var out bytes.Buffer
	err := clusterTemplate.Execute(&out, struct {
		Cluster, Budget string
		Pins            []string
	}{f.Name, budget, pins})
	if err != nil {
		return err
	}
	return f.Apply(ctx, out.Bytes())
}

// run has one node in each zone join, and one pod of each workload run. The controller is stopped after that.
func (f *fleet) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	storage, err := manifests.Render(manifests.Storage, map[string]string{"TOLERATIONS": `[{"operator":"Exists"}]`})
	if err != nil {
		return err
	}
	if err := errors.Join(f.Apply(ctx, storage), f.apply(ctx, "0" /* nothing is disrupted */, f.zones())); err != nil {
		return err
	}
	if err := f.StartController(ctx); err != nil {
		return err
	}
	if err := f.awaitRunning(ctx, len(f.zones())); err != nil {
		return err
	}
	for _, zone := range f.zones() {
		pin := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "pin-" + zone}}
		if err := f.Client.Delete(ctx, pin); err != nil {
			return err
		}
	}
	all := workloads(f.size.perNode())
	text, err := manifest(all, 1 /* replica */)
	if err != nil {
		return err
	}
	if err := f.Apply(ctx, text); err != nil {
		return err
	}
	if err := f.awaitRunning(ctx, len(all)); err != nil {
		return err
	}
	if err := f.awaitSettled(ctx); err != nil {
		return err
	}
	return f.StopController(ctx)
}

// sampleTimeout is far above what the samples take, a minute on a busy host.
const sampleTimeout = 4 * time.Minute

// awaitRunning waits until so many pods of the default namespace are Ready, and there are no others.
func (f *fleet) awaitRunning(ctx context.Context, want int) error {
	return world.Until(ctx, func() error {
		var pods corev1.PodList
		if err := f.Client.List(ctx, &pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		up := 0
		for i := range pods.Items {
			if ready(&pods.Items[i]) {
				up++
			}
		}
		if up != want || len(pods.Items) != want {
			return fmt.Errorf("%d of %d sample pods run, want %d", up, len(pods.Items), want)
		}
		return nil
	})
}

func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// awaitSettled waits until the controller has no more to write to the samples. What it still had to do for one of them, it would have to do
// for each copy.
func (f *fleet) awaitSettled(ctx context.Context) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := f.Client.List(ctx, &claims); err != nil {
			return err
		}
		for i := range claims.Items {
			if why := unsettled(&claims.Items[i]); why != "" {
				return fmt.Errorf("node claim %s %s", claims.Items[i].Name, why)
			}
		}
		return nil
	})
}

// unsettled is what the controller still has to do for a NodeClaim; empty if nothing.
func unsettled(claim *karpv1.NodeClaim) string {
	switch {
	case !condition.IsTrue(claim, karpv1.ConditionConsolidatable):
		return "is not Consolidatable"
	case claim.Annotations[awsv1.AnnotationTagged] != "true":
		return "has an instance without its name"
	}
	return ""
}

// makePending has one pod of each burst become pending, without a controller to launch a node for it.
func (f *fleet) makePending(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	text, err := manifest(bursts(), 1 /* replica */)
	if err != nil {
		return err
	}
	if err := f.cordon(ctx, true); err != nil { // the smaller ones would find room
		return err
	}
	if err := f.Apply(ctx, text); err != nil {
		return err
	}
	if err := f.awaitPending(ctx, len(bursts())); err != nil {
		return err
	}
	// The samples are schedulable again only when the scheduler has stopped.
	if err := f.Halt(ctx); err != nil {
		return err
	}
	return f.cordon(ctx, false)
}

// cordon makes the samples unschedulable, or schedulable again.
func (f *fleet) cordon(ctx context.Context, on bool) error {
	var nodes corev1.NodeList
	if err := f.Client.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on))
		if err := f.Client.Patch(ctx, &nodes.Items[i], patch); err != nil {
			return fmt.Errorf("cordon: %w", err)
		}
	}
	return nil
}

func (f *fleet) awaitPending(ctx context.Context, want int) error {
	return world.Until(ctx, func() error {
		var pods corev1.PodList
		if err := f.Client.List(ctx, &pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		n := 0
		for i := range pods.Items {
			if unschedulable(&pods.Items[i]) {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d pods are unschedulable, want %d", n, want)
		}
		return nil
	})
}

func unschedulable(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
}

// read takes the samples from etcd. Nobody changes them any more.
func (f *fleet) read(ctx context.Context) error {
	instances := map[string]awsim.Instance{}
	for _, i := range f.Running() {
		instances[i.ID] = i
	}
	nodes, err := f.store.Read(ctx, "minions/")
	if err != nil {
		return err
	}
	var claims karpv1.NodeClaimList
	if err := f.Client.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		s, err := f.sample(ctx, &claims.Items[i], nodes)
		if err != nil {
			return err
		}
		s.instance = instances[world.InstanceID(claims.Items[i].Status.ProviderID)]
		s.zone = s.instance.Zone
		if s.instance.ID == "" {
			return fmt.Errorf("node claim %s has no instance", s.claim)
		}
		s.number = len(f.samples)
		f.samples = append(f.samples, s)
		f.hosts = append(f.hosts, s.host)
	}
	return f.readPods(ctx)
}

func (f *fleet) sample(ctx context.Context, claim *karpv1.NodeClaim, nodes []store.Object) (sample, error) {
	s := sample{host: host{name: claim.Status.NodeName, claim: claim.Name}, claimUID: claim.UID}
	s.nominated = claim.Annotations[karpv1.AnnotationNominatedPods]
	docs, err := f.store.Read(ctx, "karpenter.sh/nodeclaims/"+claim.Name)
	if err != nil {
		return s, err
	}
	csi, err := f.store.Read(ctx, "csinodes/"+s.name)
	if err != nil {
		return s, err
	}
	at := slices.IndexFunc(nodes, func(o store.Object) bool { return o.Key == "minions/"+s.name })
	if at < 0 || len(docs) != 1 || len(csi) != 1 {
		return s, fmt.Errorf("node claim %s: %d documents, %d CSINodes, node found: %t", claim.Name, len(docs), len(csi), at >= 0)
	}
	s.claimDoc = docs[0].Value
	if s.csiNode, err = store.Decode(csi[0].Value, &storagev1.CSINode{}); err != nil {
		return s, err
	}
	s.nodeObject, err = store.Decode(nodes[at].Value, &corev1.Node{})
	s.nodeUID = s.nodeObject.UID
	return s, err
}

func (f *fleet) readPods(ctx context.Context) error {
	pods, err := f.store.Read(ctx, "pods/")
	if err != nil {
		return err
	}
	order := f.order()
	f.kinds = make([]*corev1.Pod, len(order))
	for _, o := range pods {
		p, err := store.Decode(o.Value, &corev1.Pod{})
		if err != nil {
			return err
		}
		app := p.Labels["app.kubernetes.io/name"]
		switch i, of := order[app]; {
		case of:
			f.kinds[i] = p
		case strings.HasPrefix(app, "burst-"):
			f.pending = append(f.pending, p)
		case p.Spec.NodeName == f.samples[0].name:
			f.daemonPods = append(f.daemonPods, p)
		}
	}
	if len(f.daemonPods) != daemons || slices.Contains(f.kinds, nil) {
		return fmt.Errorf("%d daemons run on node %s, want %d; or a workload has no pod", len(f.daemonPods), f.samples[0].name, daemons)
	}
	return nil
}

// grow launches the other instances, and writes all objects.
func (f *fleet) grow(ctx context.Context) error {
	for i := len(f.samples); i < f.size.Nodes; i++ {
		if err := f.launch(i); err != nil {
			return err
		}
	}
	if err := f.writeNodes(ctx); err != nil {
		return err
	}
	return errors.Join(f.writePods(ctx), f.scale(ctx))
}

// launch launches the instance of a host like that of a sample.
func (f *fleet) launch(number int) error {
	s := &f.samples[number%len(f.samples)]
	h := host{claim: fmt.Sprintf("general-%05d", number), zone: s.zone, number: number}
	instance, err := f.aws.CopyInstance(s.instance.ID, func(i awsim.Instance) map[string]string {
		h.name, h.instance = i.PrivateDNSName, i
		if f.launched != nil {
			f.launched(h, s)
		}
		tags, names := maps.Clone(s.instance.Tags), s.rename(h)
		for key, value := range tags {
			tags[key] = names.Replace(value)
		}
		return tags
	})
	if err != nil {
		return err
	}
	h.instance = instance
	f.hosts = append(f.hosts, h)
	return nil
}

func (f *fleet) writeNodes(ctx context.Context) error {
	old := len(f.samples)
	for _, make := range []func(s *sample, to host) (store.Object, error){
		func(s *sample, to host) (store.Object, error) { return s.nodeClaim(to), nil }, (*sample).node, (*sample).csi,
	} {
		err := f.store.Write(ctx, len(f.hosts)-old, func(i int) (store.Object, error) {
			return make(&f.samples[(old+i)%old], f.hosts[old+i])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writePods gives every node its pods, the samples, too, and deletes the pods that ran.
func (f *fleet) writePods(ctx context.Context) error {
	gone := slices.Concat(f.kinds, f.pending)
	if err := f.store.Write(ctx, len(gone), func(i int) (store.Object, error) {
		return store.Object{Key: "pods/" + gone[i].Namespace + "/" + gone[i].Name}, nil
	}); err != nil {
		return err
	}
	per, old := f.size.perNode(), len(f.samples)
	// Those of the samples are watched by their kubelets, if these run.
	if err := f.store.Write(ctx, old*per, func(i int) (store.Object, error) { return f.boundPod(i, 0 /* generation */) }); err != nil {
		return err
	}
	if err := f.store.WriteMany(ctx, (f.size.Nodes-old)*per, func(i int) (store.Object, error) {
		return f.boundPod(old*per+i, 0 /* generation */)
	}); err != nil {
		return err
	}
	return f.store.WriteMany(ctx, (f.size.Nodes-old)*daemons, func(i int) (store.Object, error) {
		of, to := f.daemonPods[i%daemons], &f.hosts[old+i/daemons]
		return copyPod(of, podCopy{name: fmt.Sprintf("%s%05d", of.GenerateName, i/daemons), to: to, slot: per + i%daemons})
	})
}

// boundPod is the pod of a Deployment in a slot of a node, of all of them; another generation has another name.
func (f *fleet) boundPod(i, generation int) (store.Object, error) {
	per := f.size.perNode()
	node, slot := i/per, i%per
	of := f.kinds[(slot+per*(node%kindsPerSlot))%len(f.kinds)]
	return copyPod(of, podCopy{name: fmt.Sprintf("%s%05d-%d", of.GenerateName, node, generation), to: &f.hosts[node], slot: slot})
}

// order is the position of each workload, by name.
func (f *fleet) order() map[string]int {
	order := map[string]int{}
	for i, w := range workloads(f.size.perNode()) {
		order[w.Name] = i
	}
	return order
}

// replicas is how many pods of a workload boundPod makes: one on every node that is its turn.
func (f *fleet) replicas(kind int) int {
	turn := kind / f.size.perNode()
	return (f.size.Nodes - turn + kindsPerSlot - 1) / kindsPerSlot
}

// scale has the Deployments and ReplicaSets request the pods that there are.
func (f *fleet) scale(ctx context.Context) error {
	var sets appsv1.ReplicaSetList
	if err := f.Client.List(ctx, &sets, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	order := f.order()
	for i := range sets.Items {
		app := sets.Items[i].Labels["app.kubernetes.io/name"]
		want := f.size.Nodes / kindsPerSlot // of a burst
		if kind, found := order[app]; found {
			want = f.replicas(kind)
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, want))
		if err := f.Client.Patch(ctx, &sets.Items[i], patch); err != nil {
			return err
		}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: app,
		}}
		if err := f.Client.Patch(ctx, d, patch); err != nil {
			return err
		}
	}
	return nil
}

// burst writes so many pending pods.
func (f *fleet) burst(ctx context.Context, n int) error {
	return f.store.WriteMany(ctx, n, func(i int) (store.Object, error) {
		of := f.pending[i%len(f.pending)]
		return copyPod(of, podCopy{name: fmt.Sprintf("%s%05d", of.GenerateName, i)})
	})
}

// churn replaces so many pods, from the first on, by others on the same nodes.
func (f *fleet) churn(ctx context.Context, first, n int) error {
	bound := f.size.Nodes * f.size.perNode()
	return f.store.WriteMany(ctx, 2*n, func(i int) (store.Object, error) {
		pod := first + i/2
		o, err := f.boundPod(pod%bound, pod/bound+i%2)
		if i%2 == 0 {
			o.Value = nil
		}
		return o, err
	})
}
