package ssm_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

func start(t *testing.T) (*awsimtest.World, *ssm.Client) {
	t.Helper()
	w := awsimtest.Start(t)
	return w, ssm.NewFromConfig(w.Config)
}

func value(t *testing.T, c *ssm.Client, name string) (*types.Parameter, error) {
	t.Helper()
	out, err := c.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name})
	if err != nil {
		return nil, err
	}
	return out.Parameter, nil
}

// The parameters by which EKS names its AMIs, for each version of Kubernetes.
func TestImageParameters(t *testing.T) {
	_, c := start(t)
	id := regexp.MustCompile(`^ami-[0-9a-f]{17}$`)
	for minor := 31; minor <= 36; minor++ {
		v := fmt.Sprintf("1.%d", minor)
		al2 := "/aws/service/eks/optimized-ami/" + v + "/amazon-linux-2"
		names := map[string]bool{ // and whether they exist
			al2 + "023/x86_64/standard/recommended/image_id": true,
			al2 + "023/x86_64/nvidia/recommended/image_id":   true,
			al2 + "023/x86_64/neuron/recommended/image_id":   true,
			al2 + "023/arm64/standard/recommended/image_id":  true,
			al2 + "023/arm64/nvidia/recommended/image_id":    true,
			al2 + "023/arm64/neuron/recommended/image_id":    false,
			al2 + "/recommended/image_id":                    minor < 33,
			al2 + "-arm64/recommended/image_id":              minor < 33,
			al2 + "-gpu/recommended/image_id":                minor < 33,

			"/aws/service/bottlerocket/aws-k8s-" + v + "/x86_64/latest/image_id":        true,
			"/aws/service/bottlerocket/aws-k8s-" + v + "/arm64/latest/image_id":         true,
			"/aws/service/bottlerocket/aws-k8s-" + v + "-nvidia/x86_64/latest/image_id": true,
			"/aws/service/bottlerocket/aws-k8s-" + v + "-nvidia/arm64/latest/image_id":  true,

			"/aws/service/ami-windows-latest/Windows_Server-2019-English-Core-EKS_Optimized-" + v + "/image_id": true,
			"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-" + v + "/image_id": true,
			"/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-" + v + "/image_id": minor >= 35,
		}
		for name, exists := range names {
			p, err := value(t, c, name)
			switch {
			case !exists && awsimtest.Code(err) != "ParameterNotFound":
				t.Errorf("%s: %v, want ParameterNotFound", name, err)
			case exists && err != nil:
				t.Errorf("%s: %v", name, err)
			case exists && !id.MatchString(*p.Value):
				t.Errorf("%s = %q, no image ID", name, *p.Value)
			case exists && *p.ARN != "arn:aws:ssm:us-east-1::parameter"+name:
				t.Errorf("%s has ARN %s", name, *p.ARN)
			}
		}
	}
}

// A pinned version names one image whether it is requested by path or by listing.
func TestPinnedImages(t *testing.T) {
	_, c := start(t)
	const path = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard"
	var names []string
	pages := ssm.NewGetParametersByPathPaginator(
		c,
		&ssm.GetParametersByPathInput{Path: aws.String(path), Recursive: aws.Bool(true), MaxResults: aws.Int32(2)},
	)
	for pages.HasMorePages() {
		page := awsimtest.OK(pages.NextPage(t.Context()))(t)
		for _, p := range page.Parameters {
			names = append(names, *p.Name)
		}
	}
	pinned := regexp.MustCompile(`^` + path + `/amazon-eks-node-al2023-x86_64-standard-1\.36-v\d{8}/image_id$`)
	n := 0
	for _, name := range names {
		if pinned.MatchString(name) {
			n++
		}
	}
	if n < 2 || !slices.Contains(names, path+"/recommended/image_id") {
		t.Errorf("below %s: %v; want recommended and two pinned versions", path, names)
	}
	flat := awsimtest.OK(c.GetParametersByPath(t.Context(), &ssm.GetParametersByPathInput{Path: aws.String(path)}))(t)
	if len(flat.Parameters) != 0 {
		t.Errorf("not recursive: %d parameters, want none at this level", len(flat.Parameters))
	}
}

func TestOwnParameters(t *testing.T) {
	w, c := start(t)
	ctx, name := t.Context(), aws.String("/team/ami")
	first := awsimtest.OK(
		c.PutParameter(ctx, &ssm.PutParameterInput{Name: name, Value: aws.String("ami-1"), Type: types.ParameterTypeString}),
	)(
		t,
	)
	if _, err := c.PutParameter(ctx, &ssm.PutParameterInput{Name: name, Value: aws.String("ami-2"), Type: types.ParameterTypeString}); awsimtest.Code(
		err,
	) != "ParameterAlreadyExists" {
		t.Errorf("without overwrite: %v, want ParameterAlreadyExists", err)
	}
	w.Clock.Advance(time.Hour)
	second := awsimtest.OK(
		c.PutParameter(ctx, &ssm.PutParameterInput{Name: name, Value: aws.String("ami-2"), Overwrite: aws.Bool(true)}),
	)(
		t,
	)
	if first.Version != 1 || second.Version != 2 {
		t.Errorf("versions %d, %d; want 1, 2", first.Version, second.Version)
	}
	for given, want := range map[string]string{
		"/team/ami": "ami-2", "/team/ami:1": "ami-1", "arn:aws:ssm:us-east-1:111122223333:parameter/team/ami": "ami-2",
	} {
		p, err := value(t, c, given)
		if err != nil || *p.Value != want {
			t.Errorf("%s = %v (%v), want %s", given, p, err, want)
			continue
		}
		if *p.ARN != "arn:aws:ssm:us-east-1:111122223333:parameter/team/ami" {
			t.Errorf("%s has ARN %s", given, *p.ARN)
		}
	}
	if p := awsimtest.OK(value(t, c, "/team/ami"))(t); !p.LastModifiedDate.Equal(w.Clock.Now()) {
		t.Errorf("last modified %s, want %s", p.LastModifiedDate, w.Clock.Now())
	}
	many := awsimtest.OK(c.GetParameters(ctx, &ssm.GetParametersInput{Names: []string{"/team/none", "/team/ami"}}))(t)
	if len(many.Parameters) != 1 || !cmp.Equal(many.InvalidParameters, []string{"/team/none"}) {
		t.Errorf("several: %v, invalid %v", many.Parameters, many.InvalidParameters)
	}
	awsimtest.OK(c.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: name}))(t)
	if _, err := value(t, c, "/team/ami"); awsimtest.Code(err) != "ParameterNotFound" {
		t.Errorf("after deletion: %v, want ParameterNotFound", err)
	}
}

func TestErrors(t *testing.T) {
	w, c := start(t)
	if err := w.Sim.SSM().Put("/team/x", "1"); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	get := func(name string) error {
		_, err := value(t, c, name)
		return err
	}
	put := func(in ssm.PutParameterInput) error {
		if in.Name == nil {
			in.Name = aws.String("/team/y")
		}
		if in.Value == nil {
			in.Value = aws.String("v")
		}
		_, err := c.PutParameter(ctx, &in)
		return err
	}
	byPath := func(in ssm.GetParametersByPathInput) error {
		_, err := c.GetParametersByPath(ctx, &in)
		return err
	}
	_, twice := c.GetParameters(ctx, &ssm.GetParametersInput{Names: []string{"/team/x", "/team/x"}})
	_, eleven := c.GetParameters(ctx, &ssm.GetParametersInput{Names: strings.Split("a,b,c,d,e,f,g,h,i,j,k", ",")})
	_, public := c.DeleteParameter(
		ctx,
		&ssm.DeleteParameterInput{Name: aws.String("/aws/service/bottlerocket/aws-k8s-1.36/arm64/latest/image_id")},
	)
	for _, row := range []struct {
		what, code string
		err        error
	}{
		{"missing", "ParameterNotFound", get("/team/none")},
		{"name with a space", "ValidationException", get("/team/ x")},
		{"version missing", "ParameterVersionNotFound", get("/team/x:2")},
		{"label missing", "ParameterVersionNotFound", get("/team/x:prod")},
		{"another account's", "AccessDeniedException", get("arn:aws:ssm:us-east-1:999999999999:parameter/team/x")},
		{"same name twice", "ValidationException", twice},
		{"more than ten", "ValidationException", eleven},
		{"path without slash", "ValidationException", byPath(ssm.GetParametersByPathInput{Path: aws.String("team")})},
		{"page of eleven", "ValidationException", byPath(ssm.GetParametersByPathInput{Path: aws.String("/team"), MaxResults: aws.Int32(11)})},
		{"token of nobody", "InvalidNextToken", byPath(ssm.GetParametersByPathInput{Path: aws.String("/team"), NextToken: aws.String("x")})},
		{"delete a public one", "ParameterNotFound", public},
		{"put a reserved name", "AccessDeniedException", put(ssm.PutParameterInput{
			Name: aws.String("/aws/service/x"),
			Type: types.ParameterTypeString,
		})},
		{"put without type", "ValidationException", put(ssm.PutParameterInput{})},
		{"put with a type unknown", "UnsupportedParameterType", put(ssm.PutParameterInput{Type: "Blob"})},
		{"put no image as one", "ValidationException", put(ssm.PutParameterInput{
			Type:     types.ParameterTypeString,
			DataType: aws.String("aws:ec2:image"),
		})},
		{"put relative path", "ValidationException", put(ssm.PutParameterInput{Name: aws.String("a/b"), Type: types.ParameterTypeString})},
		{"put too deep", "HierarchyLevelLimitExceededException", put(ssm.PutParameterInput{
			Name: aws.String(strings.Repeat("/a", 16)),
			Type: types.ParameterTypeString,
		})},
		{"put too much", "ValidationException", put(ssm.PutParameterInput{
			Value: aws.String(strings.Repeat("x", 4097)),
			Type:  types.ParameterTypeString,
		})},
	} {
		if code := awsimtest.Code(row.err); code != row.code {
			t.Errorf("%s: %v, want %s", row.what, row.err, row.code)
		}
	}
}
