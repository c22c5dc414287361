package scale

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// awaitListed waits until the API server has read from etcd what was written there: informers get what its caches have.
func (f *fleet) awaitListed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &karpv1.NodeClaimList{}, &corev1.PodList{}} {
		if err := f.awaitCached(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// awaitCached waits until the API server's cache of a kind is as new as etcd is now. A list with a resource version
// comes from the cache, and fails as long as that is older.
func (f *fleet) awaitCached(ctx context.Context, list client.ObjectList) error {
	if err := f.Client.List(ctx, list, client.Limit(1)); err != nil {
		return err
	}
	none := client.MatchingLabels{"dovetail.sh/none": "none"}
	newer := &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: list.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
	return world.Until(ctx, func() error { return f.Client.List(ctx, list, none, newer) })
}
