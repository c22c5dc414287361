package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Policy is an admission policy that decides about writes by expressions.
type Policy struct {
	// Configuration is the kind and name of the object.
	Configuration string
	// Refuses states why it certainly rejects the writes; empty if that depends on its expressions.
	Refuses string
	// Selective policies decide about some objects of the resource only.
	Selective bool
	// Mutates is true if it changes what is written.
	Mutates bool
}

// PoliciesOf returns the policies that are bound and that may reject or change one of some writes: those that certainly refuse, then
// others that validate, then those that mutate.
func (r Reader) PoliciesOf(ctx context.Context, writes ...Write) ([]Policy, error) {
	validating, err := r.validating(ctx, writes)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(validating, func(a, b Policy) int { return cmp.Compare(refusing(a), refusing(b)) })
	mutating, err := r.mutating(ctx, writes)
	return append(validating, mutating...), err
}

// refusing sorts what certainly refuses first.
func refusing(p Policy) int {
	if p.Refuses != "" {
		return 0
	}
	return 1
}

func (r Reader) validating(ctx context.Context, writes []Write) (out []Policy, err error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		if err := r.Live.List(ctx, list); isAbsent(err) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		if p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admissionv1.Ignore && len(p.Spec.Validations) == 0 {
			continue
		}
		for _, b := range bindings.Items {
			if b.Spec.PolicyName != p.Name || !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				continue
			}
			bound, selective, err := r.decides(ctx, writes, p.Spec.MatchConstraints, b.Spec.MatchResources)
			if err != nil {
				return nil, err
			}
			if !bound {
				continue
			}
			out = append(out, Policy{
				Configuration: "validatingadmissionpolicy " + p.Name, Selective: selective || len(p.Spec.MatchConditions) > 0,
				Refuses: r.refuses(ctx, p, b.Spec.ParamRef),
			})
		}
	}
	return slices.CompactFunc(out, func(a, b Policy) bool { return a == b }), nil
}

// isAbsent reports whether the API server does not have the resource.
func isAbsent(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// decides reports whether a policy and its binding are about one of some writes, and whether about some of its objects only.
func (r Reader) decides(ctx context.Context, writes []Write, matches ...*admissionv1.MatchResources) (bound, selective bool, err error) {
	for _, w := range writes {
		all, some := true, false
		for _, m := range matches {
			if m == nil {
				continue
			}
			about, named := w.among(m.ResourceRules, m.MatchPolicy)
			excluded, onlyNamed := w.among(m.ExcludeResourceRules, m.MatchPolicy)
			in, err := r.inNamespace(ctx, m.NamespaceSelector, w)
			if err != nil {
				return false, false, err
			}
			all = all && in && (about || len(m.ResourceRules) == 0) && (!excluded || onlyNamed)
			some = some || named || excluded || selectsSome(m.ObjectSelector)
		}
		if all {
			bound, selective = true, selective || some
		}
	}
	return bound, selective, nil
}

// among reports whether a rule is about the write, and whether all of these rules are about named objects only.
func (w Write) among(rules []admissionv1.NamedRuleWithOperations, match *admissionv1.MatchPolicyType) (about, named bool) {
	named = true
	for _, rule := range rules {
		if w.matches(rule.RuleWithOperations, match) {
			about, named = true, named && len(rule.ResourceNames) > 0
		}
	}
	return about, about && named
}

// refuses returns why a policy certainly rejects what it is about; empty if that depends on its expressions.
func (r Reader) refuses(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy, ref *admissionv1.ParamRef) string {
	for _, v := range p.Spec.Validations {
		if strings.TrimSpace(v.Expression) == "false" {
			return "its expression is false for all"
		}
	}
	if p.Spec.ParamKind == nil || ref == nil || ref.Name == "" ||
		ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionv1.AllowAction {
		return ""
	}
	parameters := &unstructured.Unstructured{}
	parameters.SetGroupVersionKind(schema.FromAPIVersionAndKind(p.Spec.ParamKind.APIVersion, p.Spec.ParamKind.Kind))
	if isAbsent(r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, parameters)) {
		return fmt.Sprintf("its parameters, %s %s, do not exist", p.Spec.ParamKind.Kind, ref.Name)
	}
	return ""
}

// mutating are the policies that change one of some writes, in the newest version that the API server has of them.
func (r Reader) mutating(ctx context.Context, writes []Write) (out []Policy, err error) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		var policies admissionv1.MutatingAdmissionPolicyList
		var bindings admissionv1.MutatingAdmissionPolicyBindingList
		err := r.listIn(ctx, version, "MutatingAdmissionPolicyList", &policies)
		if err == nil {
			err = r.listIn(ctx, version, "MutatingAdmissionPolicyBindingList", &bindings)
		}
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, p := range policies.Items {
			for _, b := range bindings.Items {
				if b.Spec.PolicyName != p.Name {
					continue
				}
				bound, selective, err := r.decides(ctx, writes, p.Spec.MatchConstraints, b.Spec.MatchResources)
				if err != nil {
					return nil, err
				}
				if bound {
					out = append(out, Policy{
						Configuration: "mutatingadmissionpolicy " + p.Name, Mutates: true, Selective: selective || len(p.Spec.MatchConditions) > 0,
					})
				}
			}
		}
		break
	}
	return slices.CompactFunc(out, func(a, b Policy) bool { return a == b }), nil
}

// listIn lists objects of admissionregistration.k8s.io in a version, into the type of v1.
func (r Reader) listIn(ctx context.Context, version, kind string, into any) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: admissionv1.GroupName, Version: version, Kind: kind})
	if err := r.Live.List(ctx, list); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), into)
}
