package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
)

// ClusterState is the state of a cluster as the files describe it.
type ClusterState struct {
	// Objects are all objects but the Pools: what a pool may launch is in no file.
	cluster.Objects
	NodePools   []*karpv1.NodePool
	NodeClasses map[string]*awsv1.EC2NodeClass
	// NodeOverlays are the overlays that the controller applies, or would if they were applied to a cluster.
	NodeOverlays []*v1alpha1.NodeOverlay
	// Now is the time of the snapshot; for manifests, the creation time of the newest object.
	Now time.Time
	// Changes states how workloads supplied beside a snapshot change its pods. Drifted are the nodes that drift by a
	// supplied NodePool or node class, by NodeClaim.
	Changes []Change
	Drifted map[string]Drift
	// Notes are for people: what was ignored, and what looks like a mistake.
	Notes []string
}

// header marks a file as the snapshot of a cluster.
type header struct {
	metav1.TypeMeta `json:",inline"`
	TakenAt         metav1.Time `json:"takenAt"`
}

const (
	headerVersion = "dovetail.sh/v1"
	headerKind    = "Snapshot"
)

// identity identifies an object.
type identity struct {
	kind            string
	namespace, name string
}

// reader collects the objects of all files.
type reader struct {
	world       *ClusterState
	prototypes  map[kind]client.Object
	definitions map[kind]*parallel.Future[madeDefinition]
	objects     map[identity]*object
	order       []*object      // of objects, as read
	unnamed     map[string]int // generateName -> how many
	takenAt     time.Time
	skipped     map[kind]*skippedKind
	skipOrder   []kind
	source      source
	namespace   string
	// overridden are the snapshot's objects that are supplied again beside it.
	overridden map[identity]*object
	// gone are the snapshot's pods that workloads beside it replace.
	gone map[types.UID]bool
	// anyTaken is true if an object comes from a snapshot, live if all come from a cluster itself.
	anyTaken, live bool
	// maxPods is Input.MaxPods.
	maxPods int
}

// object is a decoded document.
type object struct {
	client.Object
	document
}

// identity identifies the object.
func (o *object) identity() identity {
	return identity{o.document.kind.kind, o.GetNamespace(), o.GetName()}
}

// Input describes what Read reads.
type Input struct {
	// Paths are files and directories, and "-" for Stdin.
	Paths []string
	Stdin io.Reader
	// Namespace is the namespace of objects without one; empty for "default".
	Namespace string
	// MaxBytes is the maximum total size; 0 means DefaultMaxBytes.
	MaxBytes int64
	// MaxPods limits how many pods there may be with those of workloads and CapacityBuffers; 0 means DefaultMaxPods. Pods of the input itself
	// are not refused.
	MaxPods int
}

// DefaultMaxBytes keeps a device or a wrong file from using all memory. A cluster of 100,000 pods is a third of it.
const DefaultMaxBytes = 1 << 30

// Read reads files, directories, and for "-" stdin, up to the default size.
func Read(paths []string, stdin io.Reader) (*ClusterState, error) {
	return Input{Paths: paths, Stdin: stdin}.Read()
}

// Read reads the input. The error has all errors of all files.
func (in Input) Read() (*ClusterState, error) {
	r := &reader{
		world:      &ClusterState{NodeClasses: map[string]*awsv1.EC2NodeClass{}},
		prototypes: prototypes(), definitions: map[kind]*parallel.Future[madeDefinition]{}, objects: map[identity]*object{},
		unnamed: map[string]int{}, skipped: map[kind]*skippedKind{},
		overridden: map[identity]*object{},
		gone:       map[types.UID]bool{},
		namespace:  cmp.Or(in.Namespace, metav1.NamespaceDefault),
		source:     source{stdin: in.Stdin, limit: cmp.Or(in.MaxBytes, DefaultMaxBytes)},
		maxPods:    cmp.Or(in.MaxPods, DefaultMaxPods),
	}
	var errs []error
	for _, path := range in.Paths {
		errs = append(errs, r.path(path)...)
	}
	if len(errs) > 0 {
		return nil, joinedErrors(errs)
	}
	for _, k := range r.skipOrder {
		r.note("%s: %s", r.skipped[k].place, r.skipped[k].why(k, r.prototypes))
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	r.world.Notes = boundedNotes(r.world.Notes)
	return r.world, nil
}

// maxErrors and maxNotes limit how many of each are printed: a wrong file may cause a million.
const maxErrors, maxNotes = 50, 200

// maxErrorLength limits how many bytes of an error are printed: a name may be as long as a file.
const maxErrorLength = 2000

func boundedNotes(all []string) []string {
	if more := len(all) - maxNotes; more > 0 {
		return append(all[:maxNotes:maxNotes], fmt.Sprintf("%d more notes omitted", more))
	}
	return all
}

// listed formats the errors of one object on one line.
func listed(wrong field.ErrorList) string {
	const most = 5
	var out []string
	for _, err := range wrong[:min(len(wrong), most)] {
		out = append(out, err.Error())
	}
	if more := len(wrong) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// joinedErrors joins errors, up to maxErrors.
func joinedErrors(errs []error) error {
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("%d more errors omitted", more))
	}
	out := make([]error, len(errs))
	for i, err := range errs {
		if out[i] = err; len(err.Error()) > maxErrorLength {
			out[i] = errors.New(strings.ToValidUTF8(err.Error()[:maxErrorLength], "") + " ...")
		}
	}
	return errors.Join(out...)
}

func (r *reader) note(format string, args ...any) {
	r.world.Notes = append(r.world.Notes, fmt.Sprintf(format, args...))
}

// path reads the files of a path.
func (r *reader) path(path string) []error {
	if path == "-" {
		return r.file(path)
	}
	files, err := sources(path)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, r.file(file)...)
	}
	return errs
}

// add decodes, validates and adds one document.
func (r *reader) add(d document) error {
	k := d.kind
	if k == (kind{headerVersion, headerKind}) {
		return r.header(d)
	}
	prototype := r.prototypes[k]
	if prototype == nil {
		r.skip(d)
		return nil
	}
	if err := r.applyDefinition(&d); err != nil {
		return err
	}
	into, notes, err := d.decode(prototype)
	if err != nil {
		return err
	}
	r.world.Notes = append(r.world.Notes, notes...)
	if wrong := validate(into); len(wrong) > 0 && !d.taken { // the API server has validated a snapshot's objects
		return d.errorf("%s: %s", d.name(), listed(wrong))
	}
	if pool, ok := into.(*karpv1.NodePool); ok {
		if err := pool.RuntimeValidate(awsv1.Vocabulary()); err != nil {
			if !d.taken {
				return d.errorf("%s: %w", d.name(), err)
			}
			r.note("%s: %s: %v", d.place, d.name(), err) // the cluster has it, and the engine tolerates it
		}
	}
	r.register(into, d)
	return nil
}

// register adds a valid object. An object with the same kind, namespace and name as an earlier one replaces it.
func (r *reader) register(into client.Object, d document) {
	r.identify(into, d.kind.kind)
	d.raw = nil
	o := &object{into, d}
	id := o.identity()
	before := r.objects[id]
	r.anyTaken = r.anyTaken || d.taken
	switch {
	case before == nil:
		r.objects[id] = o
		r.order = append(r.order, o)
		return
	case !before.document.taken || d.taken:
		r.note("%s: %s replaces that of %s", d.place, d.name(), before.place)
	default:
		old := *before
		r.overridden[id] = &old
		inherit(into, before.Object)
	}
	*before = *o
}

func (r *reader) header(d document) error {
	h := &header{}
	if err := json.Unmarshal(d.raw, h); err != nil {
		return d.errorf("Snapshot: %w", err)
	}
	if h.TakenAt.After(r.takenAt) {
		r.takenAt = h.TakenAt.Time
	}
	return nil
}

// applyDefinition defaults and validates objects of our own API. A node class may have placeholders for resources in an
// account, which no plan reads: its errors become notes.
func (r *reader) applyDefinition(d *document) error {
	k := d.kind
	if d.taken || !k.defined() {
		return nil
	}
	made := r.definitionOf(k).Wait()
	if made.err != nil {
		return made.err
	}
	fields, err := d.fields() // has the last of repeated fields
	if err != nil {
		return d.errorf("%s: %w", d.name(), err)
	}
	if repeated := repeatedFields(d.raw); len(repeated) > 0 {
		return d.errorf("%s: %w", d.name(), joinedErrors(repeated))
	}
	errs := made.complete(fields)
	if d.raw, err = json.Marshal(fields); err != nil {
		return d.errorf("%s: %w", d.name(), err)
	}
	if len(errs) == 0 {
		return nil
	}
	if k.kind == "EC2NodeClass" {
		for _, err := range errs {
			r.note("%s: %s: %s", d.place, d.name(), err)
		}
		return nil
	}
	return d.errorf("%s: %w", d.name(), errs.ToAggregate())
}

// identify sets the namespace, name and UID of an object like the API server.
func (r *reader) identify(o client.Object, kind string) {
	switch {
	case slices.Contains(clusterWide, kind):
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(r.namespace)
	}
	if o.GetName() == "" {
		key := kind + "/" + o.GetNamespace() + "/" + o.GetGenerateName()
		o.SetName(fmt.Sprintf("%s%d", o.GetGenerateName(), r.unnamed[key]))
		r.unnamed[key]++
	}
	if o.GetUID() == "" {
		o.SetUID(madeUID(kind, o.GetNamespace(), o.GetName()))
	}
	if t := o.GetCreationTimestamp().Time; t.After(r.world.Now) {
		r.world.Now = t
	}
}

// madeUID returns the UID of an object without one from an API server.
func madeUID(kind, namespace, name string) types.UID {
	return types.UID(kind + "/" + namespace + "/" + name)
}

// all returns the objects of a type, in the order in which they were read.
func all[T client.Object](r *reader) []T {
	var out []T
	for _, o := range r.order {
		if o, ok := o.Object.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// finish completes the world from the objects.
func (r *reader) finish() error {
	w := r.world
	if !r.takenAt.IsZero() {
		w.Now = r.takenAt
	}
	w.Pods = all[*corev1.Pod](r)
	r.sort()
	if err := r.expand(); err != nil {
		return err
	}
	if err := r.drift(); err != nil {
		return err
	}
	return r.complete()
}

// sort puts all objects but pods in their places.
func (r *reader) sort() {
	w := r.world
	w.NodePools = all[*karpv1.NodePool](r)
	w.NodeClaims = all[*karpv1.NodeClaim](r)
	w.Nodes = all[*corev1.Node](r)
	w.CSINodes = all[*storagev1.CSINode](r)
	w.CSIDrivers = all[*storagev1.CSIDriver](r)
	w.CSIStorageCapacities = all[*storagev1.CSIStorageCapacity](r)
	w.VolumeAttachments = all[*storagev1.VolumeAttachment](r)
	w.DaemonSets = all[*appsv1.DaemonSet](r)
	w.PersistentVolumes = all[*corev1.PersistentVolume](r)
	w.PersistentVolumeClaims = all[*corev1.PersistentVolumeClaim](r)
	w.StorageClasses = all[*storagev1.StorageClass](r)
	w.PDBs = all[*policyv1.PodDisruptionBudget](r)
	w.Namespaces = all[*corev1.Namespace](r)
	w.LimitRanges = all[*corev1.LimitRange](r)
	w.RuntimeClasses = all[*nodev1.RuntimeClass](r)
	if groups := all[*schedulingv1beta1.PodGroup](r); len(groups) > 0 {
		w.PodGroups = &cluster.PodGroups{Groups: groups}
	}
	w.Owners = r.owners()
	for _, class := range all[*awsv1.EC2NodeClass](r) {
		w.NodeClasses[class.Name] = class
	}
}

// complete adds what the API server and controllers would, to objects that do not come from a cluster.
func (r *reader) complete() error {
	for _, complete := range []func(){
		r.completeNodes, r.completeVolumes, r.completePods, r.completeDevices, r.completeNamespaces, r.completeOverlays,
	} {
		complete()
	}
	if err := r.admitPods(); err != nil {
		return err
	}
	r.completePodGroups()
	return r.completeBuffers()
}
