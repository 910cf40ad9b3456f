"""`POST /transcribe`: a recording in, notes out."""

from fastapi import APIRouter

router = APIRouter()
