package v1

import "github.com/danielgtaylor/huma/v2"

// Document is the OpenAPI document of the API.
func Document(opt Options) *huma.OpenAPI { return newFace(opt).api.OpenAPI() }
