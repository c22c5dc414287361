package gather

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
)

const (
	creation = admissionv1.Create
	update   = admissionv1.Update
	deletion = admissionv1.Delete
)

// writes are what Dovetail, its installation and the nodes write, in the words of results.
func writes(f *migrate.Facts) map[string][]apiserver.Write {
	write := func(group, resource, namespace string, operations ...admissionv1.OperationType) apiserver.Write {
		return apiserver.Write{
			Group: group, Resource: resource, Operations: operations, Versions: served(f, group), Namespace: namespace,
		}
	}
	out := map[string][]apiserver.Write{
		migrate.WritesOfClaims:    {write("karpenter.sh", "*", "", creation, update, deletion)},
		migrate.WritesOfClasses:   {write("karpenter.k8s.aws", "*", "", creation, update)},
		migrate.WritesOfNodes:     {write("", "nodes", "", creation, update, deletion)},
		migrate.WritesOfEvictions: {write("", "pods/eviction", "", creation)},
		migrate.WritesOfDeletions: {write("", "pods", "", deletion)},
	}
	if k := f.Karpenter(); k != nil {
		out[migrate.WritesOfLease] = []apiserver.Write{write("coordination.k8s.io", "leases", k.Namespace, creation, update)}
		out[migrate.WritesOfPods] = []apiserver.Write{
			write("apps", "deployments", k.Namespace, creation, update), write("apps", "replicasets", k.Namespace, creation, update),
			write("", "pods", k.Namespace, creation),
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
	reader := apiserver.Reader{Live: live}
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
