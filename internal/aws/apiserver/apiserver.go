// Package apiserver reads of the API server what decides, beside AWS, whether nodes join: the ConfigMap aws-auth, and
// the admission webhooks that may refuse a Node.
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

// Reader reads from the API server itself: what it looks at changes seldom, and is not worth a watch.
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

// NodesOfRole counts the registered nodes of EC2NodeClasses that give their instances a role, by its name, or an instance profile.
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

// hook is what validating and mutating webhooks have in common.
type hook struct {
	configuration, name string
	rules               []admissionv1.RuleWithOperations
	policy              *admissionv1.FailurePolicyType
	client              admissionv1.WebhookClientConfig
	objects             *metav1.LabelSelector
	conditions          []admissionv1.MatchCondition
}

// NodeWebhooks returns the webhooks without which no Node can be created or changed, in the order of their names.
func (r Reader) NodeWebhooks(ctx context.Context) ([]join.Webhook, error) {
	var validating admissionv1.ValidatingWebhookConfigurationList
	if err := r.Live.List(ctx, &validating); err != nil {
		return nil, err
	}
	var mutating admissionv1.MutatingWebhookConfigurationList
	if err := r.Live.List(ctx, &mutating); err != nil {
		return nil, err
	}
	var hooks []hook
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			hooks = append(hooks, hook{"validatingwebhookconfiguration " + c.Name, w.Name, w.Rules, w.FailurePolicy, w.ClientConfig, w.ObjectSelector, w.MatchConditions})
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			hooks = append(hooks, hook{"mutatingwebhookconfiguration " + c.Name, w.Name, w.Rules, w.FailurePolicy, w.ClientConfig, w.ObjectSelector, w.MatchConditions})
		}
	}
	var out []join.Webhook
	for _, h := range hooks {
		if !h.mustApproveNodes() {
			continue
		}
		backend, err := r.silent(ctx, h.client.Service)
		if err != nil {
			return nil, err
		}
		out = append(out, join.Webhook{Configuration: h.configuration, Name: h.name, Backend: backend, Selective: h.selective()})
	}
	return out, nil
}

func (h hook) mustApproveNodes() bool {
	if h.policy != nil && *h.policy == admissionv1.Ignore {
		return false
	}
	return slices.ContainsFunc(h.rules, func(rule admissionv1.RuleWithOperations) bool {
		return oneOf(rule.APIGroups, "", "*") && oneOf(rule.APIVersions, "v1", "*") && oneOf(rule.Resources, "nodes", "*", "*/*") &&
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

// silent says why nobody answers for a service; empty if somebody may, or if it is no service but a URL.
func (r Reader) silent(ctx context.Context, ref *admissionv1.ServiceReference) (string, error) {
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
		return "", nil // its endpoints are somebody's own affair
	}
	var slices discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &slices, client.InNamespace(ref.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: ref.Name}); err != nil {
		return "", err
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return "", nil
			}
		}
	}
	return fmt.Sprintf("its service %s/%s has no ready endpoint", ref.Namespace, ref.Name), nil
}
