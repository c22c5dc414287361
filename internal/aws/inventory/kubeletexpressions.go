package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/expression"
)

// Kubelet returns spec.kubelet of the class as JSON, with expressions resolved for a type; nil if there is none.
type Kubelet func(instanceType string) ([]byte, error)

// Kubelets returns the kubelet settings of the class by type. It is nil if they are the same for all types.
func (s *Source) Kubelets(ctx context.Context, class *awsv1.EC2NodeClass) (Kubelet, error) {
	kubelet, err := class.KubeletConfiguration()
	if err != nil || len(expression.Find(kubelet)) == 0 {
		return nil, err
	}
	of, err := s.classInputs(ctx, class)
	if err != nil {
		return nil, err
	}
	current, err := s.currentListing(ctx)
	if err != nil {
		return nil, err
	}
	session, err := s.cfg.Resolver.ForClass(of.Class, s.market(resolveInputs{class: of, listing: current}))
	if err != nil {
		return nil, err
	}
	return func(instanceType string) ([]byte, error) {
		i, ok := slices.BinarySearchFunc(current.types, instanceType, func(t ec2types.InstanceTypeInfo, name string) int {
			return strings.Compare(string(t.InstanceType), name)
		})
		if !ok {
			return nil, fmt.Errorf("EC2 does not offer instance type %s", instanceType)
		}
		resolved, err := session.Kubelet(current.types[i])
		if err != nil {
			return nil, err
		}
		return expression.ResolvedJSON(class.Spec.Kubelet.Raw, resolved)
	}, nil
}

// FailingExpressions returns the types for which an expression in the class's kubelet settings fails, and the number of
// all types. err is an *expression.InvalidError if an expression does not compile, else the *expression.FailedError of
// the first of those types.
func (s *Source) FailingExpressions(ctx context.Context, class *awsv1.EC2NodeClass) (failing []string, of int, err error) {
	kubelet, err := class.KubeletConfiguration()
	if err != nil || len(expression.Find(kubelet)) == 0 {
		return nil, 0, err
	}
	inputs, err := s.classInputs(ctx, class)
	if err != nil {
		return nil, 0, err
	}
	current, err := s.currentListing(ctx)
	if err != nil {
		return nil, 0, err
	}
	session, err := s.cfg.Resolver.ForClass(inputs.Class, s.market(resolveInputs{class: inputs, listing: current}))
	if err != nil {
		return nil, 0, err
	}
	var first error
	for i := range current.types {
		if _, err := session.Kubelet(current.types[i]); err != nil {
			failing = append(failing, string(current.types[i].InstanceType))
			if first == nil {
				first = err
			}
		}
	}
	return failing, len(current.types), first
}
