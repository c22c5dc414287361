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
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// World is what the files tell.
type World struct {
	// Objects, all but the Pools: what a pool may launch is not told by files.
	cluster.Objects
	NodePools   []*karpv1.NodePool
	NodeClasses map[string]*awsv1.EC2NodeClass
	// Now is when the world was taken from a cluster; of manifests, when the youngest object was created.
	Now time.Time
	// Changes are what workloads beside a snapshot do to its pods, Drifted the nodes that are not what a NodePool or node class
	// beside a snapshot would launch, by NodeClaim.
	Changes []Change
	Drifted map[string]Drift
	// Notes are for people: what was left out, and what looks like a mistake.
	Notes []string
}

// header says of a file that it shows a whole cluster at an instant.
type header struct {
	metav1.TypeMeta `json:",inline"`
	TakenAt         metav1.Time `json:"takenAt"`
}

const (
	headerVersion = "dovetail.sh/v1"
	headerKind    = "Snapshot"
)

// identity is what an object is known by.
type identity struct {
	kind            string
	namespace, name string
}

// reader gathers objects.
type reader struct {
	world       *World
	prototypes  map[kind]client.Object
	definitions map[kind]*definition
	objects     map[identity]*object
	order       []identity
	unnamed     map[string]int // generateName -> how many
	takenAt     time.Time
	skipped     map[kind]*leftOut
	skipOrder   []kind
	source      source
	namespace   string
	// overridden are objects of a snapshot that have come again beside it.
	overridden map[identity]*object
}

// object is a decoded document.
type object struct {
	client.Object
	document
}

// Input is what a world is read from.
type Input struct {
	// Paths are files and directories, and "-" for Stdin.
	Paths []string
	Stdin io.Reader
	// Namespace is that of objects that name none; empty for "default".
	Namespace string
	// MaxBytes is how much all of it may be; 0 stands for DefaultMaxBytes.
	MaxBytes int64
}

// DefaultMaxBytes keeps a device or a wrong file from taking all memory. A cluster of 100,000 pods is a third of it.
const DefaultMaxBytes = 1 << 30

// Read reads files, directories, and for "-" stdin, within the default bound.
func Read(paths []string, stdin io.Reader) (*World, error) {
	return Input{Paths: paths, Stdin: stdin}.Read()
}

// Read makes a world of the input. Whatever is wrong with any of it is in the error.
func (in Input) Read() (*World, error) {
	r := &reader{
		world:      &World{NodeClasses: map[string]*awsv1.EC2NodeClass{}},
		prototypes: prototypes(), definitions: map[kind]*definition{}, objects: map[identity]*object{}, unnamed: map[string]int{}, skipped: map[kind]*leftOut{},
		overridden: map[identity]*object{},
		namespace:  cmp.Or(in.Namespace, metav1.NamespaceDefault),
		source:     source{stdin: in.Stdin, most: cmp.Or(in.MaxBytes, DefaultMaxBytes)},
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
	if more := len(r.world.Notes) - mostNotes; more > 0 {
		r.world.Notes = append(r.world.Notes[:mostNotes:mostNotes], fmt.Sprintf("%d notes more are left out", more))
	}
	return r.world, nil
}

// mostErrors and mostNotes are how many of each are printed: a wrong file of a million documents has as many.
const mostErrors, mostNotes = 50, 200

// mostOfError is how many characters of one are printed: a name may be as long as a file.
const mostOfError = 2000

// listed are the faults of one object, on one line.
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

// joinedErrors is one error of several.
func joinedErrors(errs []error) error {
	if more := len(errs) - mostErrors; more > 0 {
		errs = append(errs[:mostErrors:mostErrors], fmt.Errorf("%d errors more are left out", more))
	}
	out := make([]error, len(errs))
	for i, err := range errs {
		if out[i] = err; len(err.Error()) > mostOfError {
			out[i] = errors.New(strings.ToValidUTF8(err.Error()[:mostOfError], "") + " ...")
		}
	}
	return errors.Join(out...)
}

func (r *reader) note(format string, args ...any) {
	r.world.Notes = append(r.world.Notes, fmt.Sprintf(format, args...))
}

// path reads what a path stands for.
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

func (r *reader) file(path string) []error {
	name, data, err := r.source.read(path)
	if err != nil {
		return []error{err}
	}
	documents, errs := split(name, data)
	if len(documents) == 0 && len(errs) == 0 {
		r.note("%s: holds no objects", name)
	}
	taken := slices.ContainsFunc(documents, func(d document) bool { return d.kind == kind{headerVersion, headerKind} })
	for _, d := range documents {
		d.taken = taken
		if err := r.add(d); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// add takes up one document.
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
	if wrong := faults(into); len(wrong) > 0 && !d.taken { // what a cluster has, its API server has admitted
		return d.errorf("%s: %s", d.name(), listed(wrong))
	}
	if pool, ok := into.(*karpv1.NodePool); ok {
		if err := pool.RuntimeValidate(awsv1.Vocabulary()); err != nil {
			if !d.taken {
				return d.errorf("%s: %w", d.name(), err)
			}
			r.note("%s: %s: %v", d.place, d.name(), err) // the cluster has it, and the engine lives with it
		}
	}
	r.identify(into, k.kind)
	id := identity{k.kind, into.GetNamespace(), into.GetName()}
	if before := r.objects[id]; before != nil {
		if !before.document.taken || d.taken {
			r.note("%s: %s replaces that of %s", d.place, d.name(), before.place)
		} else {
			r.overridden[id] = before
			inherit(into, before.Object)
		}
	} else {
		r.order = append(r.order, id)
	}
	d.raw = nil
	r.objects[id] = &object{into, d}
	return nil
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

// applyDefinition defaults and checks what users write of our own API. A node class may hold placeholders where
// it names what is in an account, which no plan looks at: of that there is only a note.
func (r *reader) applyDefinition(d *document) error {
	k := d.kind
	if d.taken || (k.kind != "NodePool" && k.kind != "EC2NodeClass") {
		return nil
	}
	if r.definitions[k] == nil {
		s, err := newDefinition(k)
		if err != nil {
			return err
		}
		r.definitions[k] = s
	}
	fields, err := d.fields()
	if err != nil {
		return d.errorf("%s: %w", d.name(), err)
	}
	errs := r.definitions[k].complete(fields)
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

// identify gives an object what the API server would: a namespace, a name, a UID.
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

// madeUID is the UID of an object that no API server has given one.
func madeUID(kind, namespace, name string) types.UID {
	return types.UID(kind + "/" + namespace + "/" + name)
}

// all are the objects of a kind, in the order in which they were read.
func all[T client.Object](r *reader) []T {
	var out []T
	for _, id := range r.order {
		if o, ok := r.objects[id].Object.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// finish makes a world of the objects.
func (r *reader) finish() error {
	w := r.world
	if !r.takenAt.IsZero() {
		w.Now = r.takenAt
	}
	w.NodePools = all[*karpv1.NodePool](r)
	w.NodeClaims = all[*karpv1.NodeClaim](r)
	w.Nodes = all[*corev1.Node](r)
	w.CSINodes = all[*storagev1.CSINode](r)
	w.DaemonSets = all[*appsv1.DaemonSet](r)
	w.PersistentVolumes = all[*corev1.PersistentVolume](r)
	w.PersistentVolumeClaims = all[*corev1.PersistentVolumeClaim](r)
	w.StorageClasses = all[*storagev1.StorageClass](r)
	w.PDBs = all[*policyv1.PodDisruptionBudget](r)
	w.Namespaces = all[*corev1.Namespace](r)
	w.Pods = all[*corev1.Pod](r)
	w.Owners = r.owners()
	for _, class := range all[*awsv1.EC2NodeClass](r) {
		w.NodeClasses[class.Name] = class
	}
	if err := r.expand(); err != nil {
		return err
	}
	if err := r.drift(); err != nil {
		return err
	}
	for _, complete := range []func(){r.completeNodes, r.completeVolumes, r.completePods, r.completeNamespaces} {
		complete()
	}
	return r.completeRuntimes()
}
