package gather

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
)

const (
	creation = admissionv1.Create
	update   = admissionv1.Update
	deletion = admissionv1.Delete
)

// writes returns what Dovetail, its installation and the nodes write, in the words of results.
func writes(f *migrate.Facts) map[string][]apiserver.Write {
	write := func(group, resource string, operations ...admissionv1.OperationType) apiserver.Write {
		return apiserver.Write{Group: group, Resource: resource, Operations: operations, Versions: served(f, group)}
	}
	in := func(namespace string, w apiserver.Write) apiserver.Write {
		w.Namespaced, w.Namespace = true, namespace
		return w
	}
	out := map[string][]apiserver.Write{
		migrate.WritesOfClaims:  {write("karpenter.sh", "*", creation, update, deletion)},
		migrate.WritesOfClasses: {write("karpenter.k8s.aws", "*", creation, update)},
		migrate.WritesOfNodes:   {write("", "nodes", creation, update, deletion)},
		migrate.Evictions:       {in("", write("", "pods/eviction", creation))},
		migrate.Deletions:       {in("", write("", "pods", deletion))},
	}
	if k := f.Karpenter(); k != nil {
		out[migrate.WritesOfLease] = []apiserver.Write{in(k.Namespace, write("coordination.k8s.io", "leases", creation, update))}
		out[migrate.WritesOfPods] = []apiserver.Write{
			in(k.Namespace, write("apps", "deployments", creation, update)), in(k.Namespace, write("apps", "replicasets", creation, update)),
			in(k.Namespace, write("", "pods", creation)),
		}
	}
	return out
}

// served are the versions of an API group's definitions that the API server serves.
func served(f *migrate.Facts, group string) (out []string) {
	for i := range f.Definitions {
		for _, v := range f.Definitions[i].Spec.Versions {
			if f.Definitions[i].Spec.Group == group && v.Served && !slices.Contains(out, v.Name) {
				out = append(out, v.Name)
			}
		}
	}
	return out
}

// readAdmission reads what may reject the writes.
func readAdmission(ctx context.Context, live client.Reader, f *migrate.Facts) {
	f.Webhooks, f.Policies = map[string][]apiserver.Webhook{}, map[string][]apiserver.Policy{}
	reader := apiserver.Reader{Live: &readOnce{Reader: live, answers: map[string]answer{}}}
	for what, of := range writes(f) {
		var err error
		if f.Webhooks[what], err = reader.WebhooksOf(ctx, of...); err != nil {
			f.Cluster.Miss(migrate.Webhooks, err.Error())
		}
		if f.Policies[what], err = reader.PoliciesOf(ctx, of...); err != nil {
			f.Cluster.Miss(migrate.Policies, err.Error())
		}
	}
}

// readOnce reads each object and list once: many webhooks have one service, and each kind of write is checked with all of them.
type readOnce struct {
	client.Reader
	answers map[string]answer
}

// answer describes what the API server has answered: the object or list, or the error.
type answer struct {
	value any
	err   error
}

// Get implements client.Reader.
func (r *readOnce) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	return r.read(fmt.Sprintf("%s %s", kindOf(into), key), into, func() error { return r.Reader.Get(ctx, key, into, opts...) })
}

// List implements client.Reader.
func (r *readOnce) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	key := fmt.Sprintf("%s in %q with %v", kindOf(into), options.Namespace, options.LabelSelector)
	return r.read(key, into, func() error { return r.Reader.List(ctx, into, opts...) })
}

// kindOf distinguishes kinds , also where they have one Go type.
func kindOf(o runtime.Object) string {
	return fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind())
}

func (r *readOnce) read(key string, into any, do func() error) error {
	to := reflect.ValueOf(into).Elem()
	if found, again := r.answers[key]; again {
		if found.err == nil {
			to.Set(reflect.ValueOf(found.value)) // shared, and only read
		}
		return found.err
	}
	err := do()
	r.answers[key] = answer{to.Interface(), err}
	return err
}
