package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/aws/join"
)

// Write is a write that admission decides about, of objects in version v1.
type Write struct {
	// Group is the API group; Resource is plural, with the subresource if it is one: pods/eviction. * is any resource of the group.
	Group, Resource string
	Operations      []admissionv1.OperationType
	// Versions are the others in which the API server serves the resource: rules for these match, too, but for those that match exactly.
	Versions []string
	// Namespaced objects are in some namespace; Namespace has all of them, if it is one.
	Namespaced bool
	Namespace  string
}

// nodeWrites states how a node registers.
var nodeWrites = Write{Resource: "nodes", Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}}

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

// hook has the fields that validating and mutating webhooks share.
type hook struct {
	configuration, name string
	rules               []admissionv1.RuleWithOperations
	policy              *admissionv1.FailurePolicyType
	match               *admissionv1.MatchPolicyType
	client              admissionv1.WebhookClientConfig
	objects             *metav1.LabelSelector
	namespaces          *metav1.LabelSelector
	conditions          []admissionv1.MatchCondition
}

// NodeWebhooks returns the webhooks that must approve the creation or an update of a Node, in the order of their configurations.
func (r Reader) NodeWebhooks(ctx context.Context) ([]join.Webhook, error) {
	found, err := r.WebhooksOf(ctx, nodeWrites)
	if err != nil {
		return nil, err
	}
	var out []join.Webhook
	for _, w := range found {
		out = append(out, join.Webhook{Configuration: w.Configuration, Name: w.Name, Backend: w.Unreachable, Selective: w.Selective})
	}
	return out, nil
}

// WebhooksOf returns the webhooks that must approve one of some writes, in the order of their configurations.
func (r Reader) WebhooksOf(ctx context.Context, writes ...Write) ([]Webhook, error) {
	hooks, err := r.hooks(ctx)
	if err != nil {
		return nil, err
	}
	var out []Webhook
	for _, h := range hooks {
		must, err := r.mustApprove(ctx, h, writes)
		if err != nil {
			return nil, err
		}
		if !must {
			continue
		}
		w := Webhook{Configuration: h.configuration, Name: h.name, Selective: h.selective()}
		if ref := h.service(); ref != nil {
			w.Namespace, w.Service = ref.Namespace, ref.Name
			if w.Selector, w.Unreachable, err = r.backend(ctx, ref); err != nil {
				return nil, err
			}
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
			out = append(out, hook{
				name, w.Name, w.Rules, w.FailurePolicy, w.MatchPolicy, w.ClientConfig, w.ObjectSelector, w.NamespaceSelector, w.MatchConditions,
			})
		}
	}
	for _, c := range mutating.Items {
		name := "mutatingwebhookconfiguration " + c.Name
		for _, w := range c.Webhooks {
			out = append(out, hook{
				name, w.Name, w.Rules, w.FailurePolicy, w.MatchPolicy, w.ClientConfig, w.ObjectSelector, w.NamespaceSelector, w.MatchConditions,
			})
		}
	}
	return out, nil
}

// mustApprove reports whether a webhook must approve one of some writes. One that is ignored when it fails need not.
func (r Reader) mustApprove(ctx context.Context, h hook, writes []Write) (bool, error) {
	if h.policy != nil && *h.policy == admissionv1.Ignore {
		return false, nil
	}
	for _, w := range writes {
		rule := func(rule admissionv1.RuleWithOperations) bool { return w.matches(rule, h.match) }
		if !slices.ContainsFunc(h.rules, rule) {
			continue
		}
		if in, err := r.inNamespace(ctx, h.namespaces, w); in || err != nil {
			return in, err
		}
	}
	return false, nil
}

// inNamespace reports whether a selector of namespaces selects one of those that a write may be in. Objects without a namespace are
// selected by any.
func (r Reader) inNamespace(ctx context.Context, selector *metav1.LabelSelector, w Write) (bool, error) {
	if !w.Namespaced || !selectsSome(selector) {
		return true, nil
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	if w.Namespace != "" {
		var namespace corev1.Namespace
		err := r.Live.Get(ctx, client.ObjectKey{Name: w.Namespace}, &namespace)
		return selects.Matches(labels.Set(namespace.Labels)), err
	}
	var namespaces corev1.NamespaceList
	err = r.Live.List(ctx, &namespaces)
	return slices.ContainsFunc(namespaces.Items, func(n corev1.Namespace) bool { return selects.Matches(labels.Set(n.Labels)) }), err
}

// matches reports whether a rule is about the write, as the API server matches them.
func (w Write) matches(rule admissionv1.RuleWithOperations, match *admissionv1.MatchPolicyType) bool {
	versions := []string{"v1", "*"}
	if match == nil || *match == admissionv1.Equivalent {
		versions = append(versions, w.Versions...)
	}
	return oneOf(rule.APIGroups, w.Group, "*") && oneOf(rule.APIVersions, versions...) &&
		slices.ContainsFunc(rule.Resources, w.isOf) && slices.ContainsFunc(rule.Operations, func(o admissionv1.OperationType) bool {
		return o == admissionv1.OperationAll || slices.Contains(w.Operations, o)
	})
}

// isOf reports whether a rule's resource is that of the write: nodes, nodes/*, nodes/status, */status, * without and */* with
// subresources.
func (w Write) isOf(rule string) bool {
	if w.Resource == "*" {
		return true
	}
	resource, sub, _ := strings.Cut(w.Resource, "/")
	of, ofSub, _ := strings.Cut(rule, "/")
	return (of == "*" || of == resource) && (ofSub == "*" || ofSub == sub)
}

func (h hook) selective() bool { return selectsSome(h.objects) || len(h.conditions) > 0 }

func selectsSome(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

func oneOf(list []string, wanted ...string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(wanted, s) })
}

// service is the backend of a webhook, also where its URL has the name of a service; nil if it is elsewhere.
func (h hook) service() *admissionv1.ServiceReference {
	if h.client.URL == nil {
		return h.client.Service
	}
	address, err := url.Parse(*h.client.URL)
	if err != nil {
		return nil
	}
	parts := strings.Split(address.Hostname(), ".") // NAME.NAMESPACE.svc.cluster.local
	if len(parts) < 3 || parts[2] != "svc" {
		return nil
	}
	return &admissionv1.ServiceReference{Name: parts[0], Namespace: parts[1]}
}

// backend is which pods a service selects, and why none of them answers; empty if one may.
func (r Reader) backend(ctx context.Context, ref *admissionv1.ServiceReference) (
	selector map[string]string, unreachable string, err error,
) {
	var service corev1.Service
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &service)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Sprintf("its service %s/%s does not exist", ref.Namespace, ref.Name), nil
	case err != nil:
		return nil, "", err
	case len(service.Spec.Selector) == 0:
		return nil, "", nil // its endpoints are not managed by Kubernetes
	}
	selector = service.Spec.Selector
	var endpoints discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &endpoints, client.InNamespace(ref.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: ref.Name}); err != nil {
		return nil, "", err
	}
	for _, s := range endpoints.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return selector, "", nil
			}
		}
	}
	return selector, fmt.Sprintf("its service %s/%s has no ready endpoint", ref.Namespace, ref.Name), nil
}
