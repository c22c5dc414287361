// Package apiserver reads from the API server what decides, in addition to AWS, whether nodes join: the ConfigMap aws-auth, and the
// admission webhooks that may reject a Node.
package apiserver

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
)

// Reader reads from the API server without a cache: these objects change rarely, and are not worth a watch.
type Reader struct{ Live client.Reader }

// AuthMap returns the data of ConfigMap kube-system/aws-auth.
func (r Reader) AuthMap(ctx context.Context) (data map[string]string, found bool, err error) {
	var m corev1.ConfigMap
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "aws-auth"}, &m)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	return m.Data, err == nil, err
}

// NodesOfRole counts the registered nodes of EC2NodeClasses with a role, by its name, or with an instance profile.
func (r Reader) NodesOfRole(ctx context.Context, role, profile string) (out join.Running, err error) {
	var classes awsv1.EC2NodeClassList
	if err := r.Live.List(ctx, &classes); err != nil {
		return out, err
	}
	uses := map[string]bool{}
	for _, c := range classes.Items {
		uses[c.Name] = role != "" && join.RoleName(c.Spec.Role) == role || profile != "" && c.Status.InstanceProfile == profile
	}
	var claims karpv1.NodeClaimList
	if err := r.Live.List(ctx, &claims); err != nil {
		return out, err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		ref := claim.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) || !uses[ref.Name] || !condition.IsTrue(claim, karpv1.ConditionRegistered) {
			continue
		}
		if claim.Labels[corev1.LabelOSStable] == string(corev1.Windows) {
			out.Windows++
		} else {
			out.Linux++
		}
	}
	return out, nil
}

// hook has the fields that validating and mutating webhooks share.
type hook struct {
	configuration, name string
	rules               []admissionv1.RuleWithOperations
	policy              *admissionv1.FailurePolicyType
	client              admissionv1.WebhookClientConfig
	objects             *metav1.LabelSelector
	conditions          []admissionv1.MatchCondition
}

// NodeWebhooks returns the webhooks that must approve the creation or an update of a Node, in the order of their configurations.
func (r Reader) NodeWebhooks(ctx context.Context) ([]join.Webhook, error) {
	hooks, err := r.hooks(ctx)
	if err != nil {
		return nil, err
	}
	var out []join.Webhook
	for _, h := range hooks {
		if !h.mustApproveNodes() {
			continue
		}
		backend, err := r.unreachable(ctx, h.client.Service)
		if err != nil {
			return nil, err
		}
		out = append(out, join.Webhook{Configuration: h.configuration, Name: h.name, Backend: backend, Selective: h.selective()})
	}
	return out, nil
}

// Webhook is a webhook that must approve writes.
type Webhook struct {
	// Configuration is the kind and name of the object, Name that of the webhook in it.
	Configuration, Name string
	// Namespace and Service are its backend; empty if it has a URL.
	Namespace, Service string
	// Selector selects the pods of the Service; nil if it does not exist or selects none.
	Selector map[string]string
	// Unreachable describes why no backend answers; empty if one may.
	Unreachable string
	// Selective webhooks approve only some objects of the resource.
	Selective bool
}

// WebhooksOf returns the webhooks that must approve writes of a resource, or of all resources of an API group (*), in the order of
// their configurations.
func (r Reader) WebhooksOf(ctx context.Context, group, resource string) ([]Webhook, error) {
	hooks, err := r.hooks(ctx)
	if err != nil {
		return nil, err
	}
	var out []Webhook
	for _, h := range hooks {
		if !h.mustApprove(group, resource) {
			continue
		}
		w := Webhook{Configuration: h.configuration, Name: h.name, Selective: h.selective()}
		if w.Unreachable, err = r.unreachable(ctx, h.client.Service); err != nil {
			return nil, err
		}
		if ref := h.client.Service; ref != nil {
			w.Namespace, w.Service = ref.Namespace, ref.Name
			var service corev1.Service
			if err := r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &service); client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			w.Selector = service.Spec.Selector
		}
		out = append(out, w)
	}
	return out, nil
}

// hooks are all webhooks: those of validating configurations, then those of mutating ones.
func (r Reader) hooks(ctx context.Context) (out []hook, err error) {
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := r.Live.List(ctx, &validating); err != nil {
		return nil, err
	}
	var mutating admissionv1.MutatingWebhookConfigurationList
	if err := r.Live.List(ctx, &mutating); err != nil {
		return nil, err
	}
	for _, c := range validating.Items {
		name := "validatingwebhookconfiguration " + c.Name
		for _, w := range c.Webhooks {
			out = append(out, hook{name, w.Name, w.Rules, w.FailurePolicy, w.ClientConfig, w.ObjectSelector, w.MatchConditions})
		}
	}
	for _, c := range mutating.Items {
		name := "mutatingwebhookconfiguration " + c.Name
		for _, w := range c.Webhooks {
			out = append(out, hook{name, w.Name, w.Rules, w.FailurePolicy, w.ClientConfig, w.ObjectSelector, w.MatchConditions})
		}
	}
	return out, nil
}

func (h hook) mustApproveNodes() bool { return h.mustApprove("", "nodes") }

// mustApprove reports whether the webhook must approve the creation or an update of a resource in version v1, or with "*" of any
// resource of the group. A webhook that is ignored when it fails need not.
func (h hook) mustApprove(group, resource string) bool {
	if h.policy != nil && *h.policy == admissionv1.Ignore {
		return false
	}
	return slices.ContainsFunc(h.rules, func(rule admissionv1.RuleWithOperations) bool {
		return oneOf(rule.APIGroups, group, "*") && oneOf(rule.APIVersions, "v1", "*") &&
			(resource == "*" && len(rule.Resources) > 0 || oneOf(rule.Resources, resource, "*", "*/*")) &&
			slices.ContainsFunc(rule.Operations, func(o admissionv1.OperationType) bool {
				return o == admissionv1.Create || o == admissionv1.Update || o == admissionv1.OperationAll
			})
	})
}

func (h hook) selective() bool {
	labels := h.objects != nil && len(h.objects.MatchLabels)+len(h.objects.MatchExpressions) > 0
	return labels || len(h.conditions) > 0
}

func oneOf(list []string, wanted ...string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(wanted, s) })
}

// unreachable describes why a webhook's service has no ready endpoint; empty if it may have one, or if the webhook has a URL.
func (r Reader) unreachable(ctx context.Context, ref *admissionv1.ServiceReference) (string, error) {
	if ref == nil {
		return "", nil
	}
	var service corev1.Service
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &service)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("its service %s/%s does not exist", ref.Namespace, ref.Name), nil
	case err != nil:
		return "", err
	case len(service.Spec.Selector) == 0:
		return "", nil // its endpoints are not managed by Kubernetes
	}
	var endpoints discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &endpoints, client.InNamespace(ref.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: ref.Name}); err != nil {
		return "", err
	}
	for _, s := range endpoints.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return "", nil
			}
		}
	}
	return fmt.Sprintf("its service %s/%s has no ready endpoint", ref.Namespace, ref.Name), nil
}
